#pragma once
// The time seam: code that measures or waits takes a Clock, so tests can own time. Monotonic only; wall
// time is for log lines and the `created` field of responses alone.
//
//   Stopwatch watch;  work();  double seconds = watch.seconds();

#include <chrono>

namespace fathom {

class Clock {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual time_point now() const = 0;
};

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// The machine's monotonic clock; one instance for the process, thread-safe.
const Clock& system_clock();

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock = system_clock()) : clock_(&clock), start_(clock.now()) {}
  double seconds() const { return seconds_between(start_, clock_->now()); }
  void restart() { start_ = clock_->now(); }

 private:
  const Clock* clock_;
  Clock::time_point start_;
};

}  // namespace fathom
