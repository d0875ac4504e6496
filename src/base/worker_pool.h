#pragma once
// WorkerPool: a few threads for work that is too long for the thread that asks for it: parsing a large body
// beside an I/O thread, grammar masks beside the engine's. Jobs start in the order of arrival. The queue is
// bounded, so that a flood is refused at once instead of waiting.
//
//   WorkerPool workers({.name = "parser", .num_threads = 2, .max_queued_jobs = 256});
//   if (!workers.post([exchange] { ... })) exchange->send(to_response(overloaded()));
//
// A job that throws is logged and forgotten, so one that owes somebody an answer catches for itself; its allocations
// may fail (memory.h). Thread-safe. The destructor runs what is queued and joins.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fathom {

struct WorkerPoolConfig {
  std::string name = "worker";  // of its threads, in traces
  int num_threads = 2;
  int max_queued_jobs = 1024;  // waiting, not running
  int nice = 0;                // above 0: gives way to other threads
};

class WorkerPool {
 public:
  explicit WorkerPool(const WorkerPoolConfig& config);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: the queue is full, the job was dropped.
  [[nodiscard]] bool post(std::function<void()> job);
  int num_queued() const;

 private:
  void run(const std::string& thread_name, int nice);
  void end();

  const size_t max_queued_jobs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fathom
