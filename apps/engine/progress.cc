#include "apps/engine/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace fathom::apps {
namespace {

constexpr int kBarWidth = 24;

double bytes_per_second(const weights::LoadProgress& progress) {
  return progress.seconds > 0 ? static_cast<double>(progress.bytes_done) / progress.seconds : 0.0;
}

void log_weights(const weights::LoadProgress& progress) {
  FATHOM_LOG(kInfo, "apps", "loading weights",
             {{"percent", static_cast<int>(fraction_done(progress) * 100)},
              {"bytes", progress.bytes_done},
              {"bytes_total", progress.bytes_total},
              {"gb_per_s", bytes_per_second(progress) * 1e-9}});
}

void log_phase(const std::string& title, double seconds) {
  FATHOM_LOG(kInfo, "apps", "still starting", {{"phase", title}, {"seconds", seconds}});
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
      line_(
          [this](double seconds) {
            const auto now = progress(seconds);
            return now ? progress_line(title_, *now) : so_far_text(title_, seconds);
          },
          [this](double seconds) {
            const auto now = progress(seconds);
            now ? log_weights(*now) : log_phase(title_, seconds);
          }) {}

void LoadProgressBar::update(const weights::LoadProgress& progress) {
  const MutexLock lock(mutex_);
  last_ = progress;
}

std::optional<weights::LoadProgress> LoadProgressBar::progress(double seconds) {
  const MutexLock lock(mutex_);
  std::optional<weights::LoadProgress> now = last_;
  if (now && fraction_done(*now) < 1) now->seconds = seconds;
  return now;
}

LiveLine start_phase(const std::string& title) {
  return LiveLine([title](double seconds) { return so_far_text(title, seconds); },
                  [title](double seconds) { log_phase(title, seconds); });
}

}  // namespace fathom::apps
