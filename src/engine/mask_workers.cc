#include "engine/mask_workers.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/trace.h"

namespace fathom::engine {

MaskWorkers::MaskWorkers(const MaskWorkersConfig& config) : job_seconds_(config.job_seconds) {
  FATHOM_CHECK(config.num_threads >= 1, config.num_threads << " mask workers");
  for (int i = 0; i < config.num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

MaskWorkers::~MaskWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskWorkers::run(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void MaskWorkers::work(int thread_idx) {
  trace::set_thread_name("mask worker " + std::to_string(thread_idx));
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const trace::Span span("mask", "fill");
    const Stopwatch watch;
    job();
    if (job_seconds_ != nullptr) job_seconds_->observe(watch.seconds());
  }
}

}  // namespace fathom::engine
