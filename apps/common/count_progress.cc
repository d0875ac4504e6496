#include "apps/common/count_progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fathom::apps {

std::string count_text(const std::string& what, int64_t done, int64_t total, double seconds,
                       double done_seconds) {
  const std::string text = std::to_string(done) + " of " + std::to_string(total) + " " + what;
  if (done == 0 || done_seconds <= 0) return so_far_text(text, seconds);
  const double rate = static_cast<double>(done) / done_seconds;
  char figure[32];
  if (rate < 1) {
    std::snprintf(figure, sizeof figure, "%.1f s each", 1 / rate);
  } else {
    std::snprintf(figure, sizeof figure, rate < 100 ? "%.1f/s" : "%.0f/s", rate);
  }
  const double left = static_cast<double>(total - done) / rate - (seconds - done_seconds);
  return text + ", " + figure + ", about " + format_seconds(std::max(left, 0.0)) + " left";
}

CountProgress::CountProgress(std::string what, int64_t total)
    : what_(std::move(what)),
      total_(total),
      line_([this](double seconds) { return text(seconds); }) {}

void CountProgress::start(std::string now) {
  const MutexLock lock(mutex_);
  now_ = std::move(now);
}

void CountProgress::add(int64_t count) {
  const MutexLock lock(mutex_);
  done_ += count;
  done_seconds_ = line_.seconds();
  now_.clear();
}

std::string CountProgress::text(double seconds) {
  const MutexLock lock(mutex_);
  const std::string text = count_text(what_, done_, total_, seconds, done_seconds_);
  return now_.empty() ? text : text + "; now " + now_;
}

}  // namespace fathom::apps
