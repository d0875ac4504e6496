#include "apps/common/live_line.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace fathom::apps {
namespace {

constexpr double kRedrawSeconds = 0.2;
// Of a run that takes long: its lines come ever more slowly.
constexpr double kSixtieth = 1.0 / 60;

// By any live line of the program; the epoch: nothing yet.
std::atomic<Clock::time_point> g_last_said{};

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

std::string so_far_text(const std::string& what, double seconds) {
  return what + ", " + format_seconds(seconds) + " so far";
}

LiveLine::LiveLine(Text text, Log log, double line_seconds)
    : text_(std::move(text)),
      log_(std::move(log)),
      silent_(log_level() > LogLevel::kWarning),
      redraw_(isatty(STDERR_FILENO) == 1 && !(log_ && log_level() <= LogLevel::kInfo)),
      line_seconds_(line_seconds) {
  if (g_last_said.load() == Clock::time_point()) g_last_said = system_clock().now();
  if (!silent_) thread_ = std::thread([this] { run(); });
}

LiveLine::~LiveLine() { finish(); }

void LiveLine::finish() {
  end_thread();
  const MutexLock lock(mutex_);
  erase();
}

void LiveLine::end_thread() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LiveLine::beside(const std::function<void()>& output) {
  const MutexLock lock(mutex_);
  erase();
  output();
}

void LiveLine::keep() {
  end_thread();
  if (silent_) return;
  const MutexLock lock(mutex_);
  say();
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

std::chrono::duration<double> LiveLine::time_to_next() const {
  if (redraw_) return std::chrono::duration<double>(kRedrawSeconds);
  const double since_last = seconds_between(g_last_said, system_clock().now());
  return std::chrono::duration<double>(std::max(line_seconds_, watch_.seconds() * kSixtieth) -
                                       since_last);
}

void LiveLine::run() {
  MutexLock lock(mutex_);
  while (true) {
    if (ended_.wait_for(lock, time_to_next(), [this]() FATHOM_REQUIRES(mutex_) { return ending_; }))
      return;
    // Another line may have said something meanwhile.
    if (redraw_ || time_to_next().count() <= 0) say();
  }
}

void LiveLine::say() {
  const double now = seconds();
  g_last_said = system_clock().now();
  if (!redraw_ && log_) return log_(now);
  // Back to column 0, and clear what a longer line left behind.
  std::fprintf(stderr, redraw_ ? "\r%s\x1b[K" : "%s\n", text_(now).c_str());
  std::fflush(stderr);
  drawn_ = redraw_;
}

void LiveLine::erase() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

LiveLine long_work(const std::string& what) {
  return LiveLine([what](double seconds) { return so_far_text(what, seconds); });
}

}  // namespace fathom::apps
