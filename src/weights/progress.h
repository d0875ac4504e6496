#pragma once
// Progress: counts bytes from several threads and tells a listener at most 20 times a second, from one
// thread at a time.
//
//   Progress progress(options.on_progress, total_bytes);
//   progress.add(piece_bytes);          // from any thread
//   progress.finish();                  // the last report, always sent
//
// add() is thread-safe.

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/mutex.h"
#include "weights/loader.h"

namespace fathom::weights {

class Progress {
 public:
  Progress(const std::function<void(const LoadProgress&)>& listener, int64_t bytes_total)
      : listener_(listener), bytes_total_(bytes_total) {}

  void add(int64_t num_bytes) {
    bytes_done_ += num_bytes;
    if (!listener_) return;
    // Whoever finds the lock taken has nothing to add: the holder reports bytes that are as new.
    if (!mutex_.try_lock()) return;
    const MutexLock lock(mutex_, std::adopt_lock);
    if (watch_.seconds() - last_report_ < kMinSecondsBetween) return;
    last_report_ = watch_.seconds();
    report();
  }

  // REQUIRES: no add() runs any more.
  void finish() {
    const MutexLock lock(mutex_);
    if (listener_) report();
  }

 private:
  static constexpr double kMinSecondsBetween = 0.05;

  void report() FATHOM_REQUIRES(mutex_) {
    listener_(
        {.bytes_done = bytes_done_, .bytes_total = bytes_total_, .seconds = watch_.seconds()});
  }

  const std::function<void(const LoadProgress&)>& listener_;
  const int64_t bytes_total_;
  std::atomic<int64_t> bytes_done_{0};
  Mutex mutex_;
  Stopwatch watch_ FATHOM_GUARDED_BY(mutex_);
  double last_report_ FATHOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace fathom::weights
