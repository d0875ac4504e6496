#pragma once
// How much processor time the calling thread has taken. Limits on it mean the same on a busy machine, unlike limits
// on the time that passes.
//
//   const double start = thread_cpu_seconds();
//   while (has_more() && thread_cpu_seconds() - start < kMaxCpuSeconds) step();
//
// Thread-safe.

#include <ctime>

namespace fathom {

inline double thread_cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace fathom
