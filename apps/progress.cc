#include "apps/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "apps/count_progress.h"
#include "base/log.h"

namespace fathom::apps {
namespace {

constexpr int kBarWidth = 24;

double bytes_per_second(const weights::LoadProgress& progress) {
  return progress.seconds > 0 ? static_cast<double>(progress.bytes_done) / progress.seconds : 0.0;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

double fraction_done(const weights::LoadProgress& progress) {
  if (progress.bytes_total <= 0) return 1.0;
  return static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total);
}

std::string progress_line(const std::string& title, const weights::LoadProgress& progress) {
  const double done = std::clamp(fraction_done(progress), 0.0, 1.0);
  const auto filled = static_cast<size_t>(done * kBarWidth);
  const double speed = bytes_per_second(progress);
  std::string line = title + "  [" + std::string(filled, '#') +
                     std::string(static_cast<size_t>(kBarWidth) - filled, ' ') + "]";
  char percent[16];
  std::snprintf(percent, sizeof percent, " %3.0f%%", done * 100);
  line += percent;
  line += "  " + format_bytes(progress.bytes_done) + " of " + format_bytes(progress.bytes_total);
  line += "  " + format_bytes(static_cast<int64_t>(speed)) + "/s";
  if (speed > 0 && done < 1.0) {
    const auto left = static_cast<double>(progress.bytes_total - progress.bytes_done);
    line += "  " + format_seconds(left / speed) + " left";
  }
  return line;
}

LoadProgressBar::LoadProgressBar(std::string title)
    : title_(std::move(title)),
      redraw_(isatty(STDERR_FILENO) == 1 && log_level() <= LogLevel::kWarning) {}

void LoadProgressBar::update(const weights::LoadProgress& progress) {
  if (!redraw_) {
    log_quarter(progress);
    return;
  }
  // Back to column 0, and clear what a longer line left behind.
  std::fprintf(stderr, "\r%s\x1b[K", progress_line(title_, progress).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void LoadProgressBar::finish() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

void LoadProgressBar::log_quarter(const weights::LoadProgress& progress) {
  const auto quarter = static_cast<int64_t>(fraction_done(progress) * 4);
  if (quarter < next_quarter_ || progress.bytes_total == 0) return;
  next_quarter_ = quarter + 1;
  FATHOM_LOG(kInfo, "apps", "loading weights",
             {{"percent", quarter * 25},
              {"bytes", progress.bytes_done},
              {"bytes_total", progress.bytes_total},
              {"gb_per_s", bytes_per_second(progress) * 1e-9}});
}

}  // namespace fathom::apps
