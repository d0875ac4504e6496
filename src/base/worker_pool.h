#pragma once
// WorkerPool: a few threads for work that is too long for the thread that asks for it: parsing a large body
// beside an I/O thread, grammar masks beside the engine's. The jobs of one owner start in the order of arrival, those
// of several owners in turns: however many one has, another's next job waits for one of each at most. The queue is
// bounded, so that a flood is refused at once instead of waiting, and so is each owner's part of it.
//
//   WorkerPool workers({.name = "parser", .num_threads = 2, .max_queued_jobs = 256});
//   if (!workers.post([exchange] { ... }, key_name)) exchange->send(to_response(overloaded()));
//
// A job that throws is logged and forgotten, so one that owes somebody an answer catches for itself; its allocations
// may fail (memory.h). Thread-safe. The destructor runs what is queued and joins.

#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace fathom {

struct WorkerPoolConfig {
  std::string name = "worker";  // of its threads, in traces
  int num_threads = 2;
  int max_queued_jobs = 1024;  // waiting, not running
  int max_queued_jobs_per_owner = std::numeric_limits<int>::max();
  int nice = 0;  // above 0: gives way to other threads
};

class WorkerPool {
 public:
  explicit WorkerPool(const WorkerPoolConfig& config);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: the queue is full, or the owner's part of it; the job was dropped.
  [[nodiscard]] bool post(std::function<void()> job, const std::string& owner = {});
  int num_queued() const;

 private:
  struct Owner {
    std::string name;
    std::deque<std::function<void()>> jobs;  // never empty
  };

  void run(const std::string& thread_name, int nice);
  void end();
  // REQUIRES: num_jobs_ > 0.
  std::function<void()> take_next() FATHOM_REQUIRES(mutex_);

  const size_t max_queued_jobs_, max_queued_jobs_per_owner_;
  mutable Mutex mutex_;
  CondVar changed_;
  // Those with jobs; the first one's turn is next.
  std::list<Owner> owners_ FATHOM_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::list<Owner>::iterator> by_name_ FATHOM_GUARDED_BY(mutex_);
  size_t num_jobs_ FATHOM_GUARDED_BY(mutex_) = 0;
  bool ending_ FATHOM_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace fathom
