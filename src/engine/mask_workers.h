#pragma once
// MaskWorkers: the threads that compute grammar masks beside the engine's thread.
//
//   MaskWorkers workers({.num_threads = 2, .job_seconds = &metrics.steps.mask_seconds});
//   StepLoop loop(runner, {.mask_executor = workers.executor()});
//
// Thread-safe. Every job runs, in the order of arrival; the destructor waits for the last. It outlives its
// executors.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "metrics/metric.h"

namespace fathom::engine {

struct MaskWorkersConfig {
  int num_threads = 2;                        // >= 1
  metrics::Histogram* job_seconds = nullptr;  // null = not timed
};

class MaskWorkers {
 public:
  explicit MaskWorkers(const MaskWorkersConfig& config);
  ~MaskWorkers();
  MaskWorkers(const MaskWorkers&) = delete;
  MaskWorkers& operator=(const MaskWorkers&) = delete;

  void run(std::function<void()> job);
  std::function<void(std::function<void()>)> executor() {
    return [this](std::function<void()> job) { run(std::move(job)); };
  }

 private:
  void work(int thread_idx);

  metrics::Histogram* const job_seconds_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fathom::engine
