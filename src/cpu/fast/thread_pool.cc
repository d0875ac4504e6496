#include "cpu/fast/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/memory.h"

namespace fathom::cpu {

namespace {

constexpr uint64_t kInsideMask = 0xFFFF;
constexpr uint64_t kOpen = uint64_t{1} << 16;
constexpr int kJobShift = 17;
// About 50 us: longer than the gaps between the operators of a step, shorter than an idle moment.
constexpr int kSpins = 1500;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  FATHOM_CHECK(num_threads >= 1 && num_threads <= 4096, "num_threads is " << num_threads);
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  for (int worker = 1; worker < num_threads; ++worker)
    threads_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::fork(int64_t num_tasks, Call call, const void* task) {
  call_ = call;
  task_ = task;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  const uint64_t job = (state_.load(std::memory_order_relaxed) >> kJobShift) + 1;
  // Sequentially consistent with park(): either the worker sees the job or we see the parked worker.
  state_.store((job << kJobShift) | kOpen);
  if (num_parked_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  claim_tasks(0);
  uint64_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spin = 0; (state & kInsideMask) != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::claim_tasks(int worker) {
  while (true) {
    const int64_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (index >= num_tasks_) return;
    call_(task_, index, worker);
  }
}

// Joins the open job unless this worker already did. The job's fields are stable from here until the
// worker leaves, because fork() waits for everyone inside.
bool ThreadPool::try_enter(uint64_t& last_job) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & kOpen) != 0 && (state >> kJobShift) != last_job) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
      last_job = state >> kJobShift;
      return true;
    }
  }
  return false;
}

void ThreadPool::work(int worker) {
  const memory::MustSucceed scope;
  uint64_t last_job = 0;
  int spin = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (try_enter(last_job)) {
      claim_tasks(worker);
      state_.fetch_sub(1, std::memory_order_release);
      spin = 0;
    } else if (++spin < kSpins) {
      pause();
    } else {
      park(last_job);
      spin = 0;
    }
  }
}

void ThreadPool::park(uint64_t last_job) {
  const uint32_t ticket = wake_.load();
  num_parked_.fetch_add(1);
  const uint64_t state = state_.load();
  const bool job_waits = (state & kOpen) != 0 && (state >> kJobShift) != last_job;
  if (!job_waits && !stop_.load()) wake_.wait(ticket);
  num_parked_.fetch_sub(1);
}

}  // namespace fathom::cpu
