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
    : max_queued_jobs_(static_cast<size_t>(config.max_queued_jobs)),
      max_queued_jobs_per_owner_(static_cast<size_t>(config.max_queued_jobs_per_owner)) {
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
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::post(std::function<void()> job, const std::string& owner) {
  {
    const MutexLock lock(mutex_);
    if (num_jobs_ >= max_queued_jobs_) return false;
    const auto found = by_name_.find(owner);
    if (found == by_name_.end()) {
      std::list<Owner> added;
      added.push_back({.name = owner, .jobs = {}});
      added.back().jobs.push_back(std::move(job));
      by_name_.emplace(owner, added.begin());
      owners_.splice(owners_.end(), added);
    } else {
      if (found->second->jobs.size() >= max_queued_jobs_per_owner_) return false;
      found->second->jobs.push_back(std::move(job));
    }
    ++num_jobs_;
  }
  changed_.notify_one();
  return true;
}

int WorkerPool::num_queued() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(num_jobs_);
}

std::function<void()> WorkerPool::take_next() {
  Owner& owner = owners_.front();
  std::function<void()> job = std::move(owner.jobs.front());
  owner.jobs.pop_front();
  --num_jobs_;
  if (owner.jobs.empty()) {
    by_name_.erase(owner.name);
    owners_.pop_front();
  } else {
    owners_.splice(owners_.end(), owners_, owners_.begin());
  }
  return job;
}

void WorkerPool::run(const std::string& thread_name, int nice) {
  const memory::MustSucceed besides_jobs;
  // Of this thread alone, where the system has it so; nothing depends on it.
  if (nice > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
  trace::set_thread_name(thread_name);
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this]() FATHOM_REQUIRES(mutex_) { return ending_ || num_jobs_ > 0; });
    if (num_jobs_ == 0) return;
    std::function<void()> job = take_next();
    lock.unlock();
    run_guarded(job);
    job = nullptr;  // what it captured is gone before the thread waits
    lock.lock();
  }
}

}  // namespace fathom
