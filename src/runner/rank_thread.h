#pragma once
// RankThread: the thread of one rank. What belongs to the rank is made and run on it, from the weights to the last
// step: its memory lies near that thread or on that thread's device, and a collective is always entered by the same
// thread.
//
//   RankThread thread(rank, backend);
//   thread.run([&] { model = Model::create(config, options, backend, rank); load(*model); }).get();     // may throw
//
// Tasks run one after another in the order of run(). The destructor runs what was given, then ends the thread.
// Thread-safe.

#include <deque>
#include <functional>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "comm/rank_context.h"
#include "ops/backend.h"

namespace fathom::runner {

class RankThread {
 public:
  // The thread uses the rank's device of the backend.
  RankThread(const comm::RankContext& rank, const ops::Backend& backend);
  ~RankThread();
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  // Ready when the task has run. get() throws what the task threw: a StartupError, which nobody throws after start-up.
  std::future<void> run(std::function<void()> task);

 private:
  void work();

  Mutex mutex_;
  CondVar given_;
  std::deque<std::packaged_task<void()>> tasks_ FATHOM_GUARDED_BY(mutex_);
  bool stopping_ FATHOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

// From here on what the calling thread does lies on the rank's device. REQUIRES: the backend has the device.
void use_device_of(const comm::RankContext& rank, const ops::Backend& backend);

// The calling thread belongs to the rank: it is called so in traces ("runner", "runner of rank 1" where there are
// several), its lines in the log carry the rank, and it uses the rank's device.
void join_rank(const comm::RankContext& rank, const ops::Backend& backend, const char* name);

}  // namespace fathom::runner
