#include "serve/deadline_timer.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "base/memory.h"

namespace fathom::serve {

namespace {

void run_guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "server", "a timed task failed", {{"why", error.what()}});
  }
}

}  // namespace

void DeadlineTimer::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeadlineTimer::after(std::chrono::milliseconds delay, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.emplace(std::chrono::steady_clock::now() + delay, std::move(task));
  }
  changed_.notify_all();
}

void DeadlineTimer::run() {
  const memory::MustSucceed scope;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = tasks_.begin();
    if (first->first > std::chrono::steady_clock::now()) {
      const auto due = first->first;
      changed_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> task = std::move(first->second);
    tasks_.erase(first);
    lock.unlock();
    run_guarded(task);
    lock.lock();
  }
}

}  // namespace fathom::serve
