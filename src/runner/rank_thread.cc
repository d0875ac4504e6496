#include "runner/rank_thread.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace.h"

namespace fathom::runner {

void use_device_of(const comm::RankContext& rank, const ops::Backend& backend) {
  if (backend.use_device != nullptr) return backend.use_device(rank.device);
  FATHOM_CHECK(rank.device == 0, backend.name << " has one device, not number " << rank.device);
}

void join_rank(const comm::RankContext& rank, const ops::Backend& backend, const char* name) {
  const bool has_others = rank.count() > 1;
  trace::set_thread_name(
      has_others ? std::string(name) + " of rank " + std::to_string(rank.number()) : name);
  if (has_others) set_log_rank(rank.number());
  use_device_of(rank, backend);
}

RankThread::RankThread(const comm::RankContext& rank, const ops::Backend& backend)
    : thread_([this, rank, &backend] {
        const memory::MustSucceed scope;
        join_rank(rank, backend, "runner");
        work();
      }) {}

RankThread::~RankThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  given_.notify_one();
  thread_.join();
}

std::future<void> RankThread::run(std::function<void()> task) {
  std::packaged_task<void()> packaged(std::move(task));
  std::future<void> done = packaged.get_future();
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(packaged));
  }
  given_.notify_one();
  return done;
}

void RankThread::work() {
  MutexLock lock(mutex_);
  while (true) {
    given_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = {};  // what it captured is gone before the thread waits
    lock.lock();
  }
}

}  // namespace fathom::runner
