#include "apps/count_progress.h"

#include <cstdio>
#include <utility>

namespace fathom::apps {

std::string count_text(const std::string& what, int64_t done, int64_t total, double seconds) {
  const std::string text = std::to_string(done) + " of " + std::to_string(total) + " " + what;
  if (done == 0 || seconds <= 0) return so_far_text(text, seconds);
  const double rate = static_cast<double>(done) / seconds;
  char figure[32];
  if (rate < 1) {
    std::snprintf(figure, sizeof figure, "%.1f s each", 1 / rate);
  } else {
    std::snprintf(figure, sizeof figure, rate < 100 ? "%.1f/s" : "%.0f/s", rate);
  }
  return text + ", " + figure + ", about " +
         format_seconds(static_cast<double>(total - done) / rate) + " left";
}

CountProgress::CountProgress(std::string what, int64_t total)
    : what_(std::move(what)),
      total_(total),
      line_([this](double seconds) { return text(seconds); }) {}

void CountProgress::start(std::string now) {
  const std::lock_guard lock(mutex_);
  now_ = std::move(now);
}

void CountProgress::add(int64_t count) {
  const std::lock_guard lock(mutex_);
  done_ += count;
  now_.clear();
}

std::string CountProgress::text(double seconds) {
  const std::lock_guard lock(mutex_);
  const std::string text = count_text(what_, done_, total_, seconds);
  return now_.empty() ? text : text + "; now " + now_;
}

}  // namespace fathom::apps
