#include "base/worker_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace.h"

namespace fathom {
namespace {

void run_guarded(const std::function<void()>& job) {
  try {
    const memory::MayFail scope;
    job();
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "base", "a job failed", {{"why", error.what()}});
  }
}

}  // namespace

WorkerPool::WorkerPool(const WorkerPoolConfig& config)
    : max_queued_jobs_(static_cast<size_t>(config.max_queued_jobs)) {
  FATHOM_CHECK(config.num_threads >= 1, "num_threads is " << config.num_threads);
  threads_.reserve(static_cast<size_t>(config.num_threads));
  try {
    for (int i = 0; i < config.num_threads; ++i)
      threads_.emplace_back([this, nice = config.nice,
                             name = config.name + ' ' + std::to_string(i)] { run(name, nice); });
  } catch (...) {
    end();
    throw;
  }
}

WorkerPool::~WorkerPool() { end(); }

void WorkerPool::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= max_queued_jobs_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

int WorkerPool::num_queued() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(jobs_.size());
}

void WorkerPool::run(const std::string& thread_name, int nice) {
  const memory::MustSucceed besides_jobs;
  // Of this thread alone, where the system has it so; nothing depends on it.
  if (nice > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
  trace::set_thread_name(thread_name);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    run_guarded(job);
    job = nullptr;  // what it captured is gone before the thread waits
    lock.lock();
  }
}

}  // namespace fathom
