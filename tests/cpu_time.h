#pragma once
// How much processor time this thread took. Bounds on it hold on a busy machine too, unlike bounds on the
// time that passes.
//
//   const CpuStopwatch watch;
//   parse(text);
//   EXPECT_LT(watch.seconds(), 2.0);

#include <ctime>

namespace fathom {

class CpuStopwatch {
 public:
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double start_ = now();
};

}  // namespace fathom
