#include "apps/count_progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace fathom::apps {
namespace {

constexpr double kRedrawSeconds = 0.1, kLineSeconds = 10;

}  // namespace

std::string format_seconds(double seconds) {
  char text[32];
  if (seconds < 100) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else {
    const auto whole = static_cast<int64_t>(seconds);
    std::snprintf(text, sizeof text, "%d:%02d min", static_cast<int>(whole / 60),
                  static_cast<int>(whole % 60));
  }
  return text;
}

std::string count_text(const std::string& what, int64_t done, int64_t total, double seconds) {
  std::string text = std::to_string(done) + " of " + std::to_string(total) + " " + what;
  if (done == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  char figure[32];
  std::snprintf(figure, sizeof figure, rate < 100 ? "%.1f" : "%.0f", rate);
  return text + ", " + figure + "/s, " + format_seconds(static_cast<double>(total - done) / rate) +
         " left";
}

CountProgress::CountProgress(std::string what, int64_t total)
    : what_(std::move(what)),
      total_(total),
      redraw_(isatty(STDERR_FILENO) == 1),
      next_seconds_(redraw_ ? 0 : kLineSeconds) {}

void CountProgress::add(int64_t count) {
  const std::lock_guard lock(mutex_);
  done_ += count;
  const double seconds = watch_.seconds();
  if (seconds < next_seconds_ || done_ >= total_) return;
  next_seconds_ = seconds + (redraw_ ? kRedrawSeconds : kLineSeconds);
  const std::string text = count_text(what_, done_, total_, seconds);
  // Back to column 0, and clear what a longer line left behind.
  std::fprintf(stderr, redraw_ ? "\r%s\x1b[K" : "%s\n", text.c_str());
  std::fflush(stderr);
  drawn_ = redraw_;
}

void CountProgress::clear() {
  const std::lock_guard lock(mutex_);
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
  next_seconds_ = 0;
}

}  // namespace fathom::apps
