#include "weights/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace fathom::weights {

Status run_jobs(size_t num_jobs, int num_threads,
                const std::function<Status(size_t job, size_t worker)>& run) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex;
  Status first_error;
  const auto work = [&](size_t worker) {
    while (!failed) {
      const size_t job = next.fetch_add(1);
      if (job >= num_jobs) return;
      Status done = run(job, worker);
      if (done) continue;
      const MutexLock lock(mutex);
      if (!failed.exchange(true)) first_error = std::move(done);
    }
  };
  const size_t workers = std::min(num_jobs, static_cast<size_t>(std::max(num_threads, 1)));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return first_error;
}

}  // namespace fathom::weights
