#pragma once
// SIGTERM, SIGINT and SIGHUP for a server. The first SIGTERM or SIGINT is a request to drain, the second a
// request to stop draining, and the third ends the process where it is, with status 1. Before serving begins,
// the first one ends it, with status 0. SIGUSR1, SIGUSR2, SIGXFSZ, SIGALRM, SIGVTALRM, SIGPROF and SIGIO do nothing.
//
//   ShutdownSignals signals;                    // before any thread is started
//   ... load ...
//   signals.serving_begins();
//   while (signals.wait() == ShutdownSignals::Kind::kReload) reload_keys();
//   ... drain while (!signals.is_urgent()) ...
//
// One object per process; wait() is for one thread.

#include <atomic>
#include <thread>

#include "base/mutex.h"

namespace fathom::apps {

// Ends the process without waiting for its threads: the log's lines are written, nothing is destroyed.
[[noreturn]] void end_here(int status);

class ShutdownSignals {
 public:
  enum class Kind { kShutdown, kReload };

  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  void serving_begins();
  // As a first SIGTERM does, from inside: what is served has failed. Any thread, once serving has begun.
  void shut_down();
  // Blocks until one comes. After kShutdown it is not called again.
  Kind wait();
  // A second SIGTERM or SIGINT has come.
  bool is_urgent() const { return urgent_; }

 private:
  void run();
  void take(int signal);

  Mutex mutex_;
  CondVar changed_;
  bool serving_ FATHOM_GUARDED_BY(mutex_) = false;
  bool shutdown_ FATHOM_GUARDED_BY(mutex_) = false;
  bool reload_ FATHOM_GUARDED_BY(mutex_) = false;
  bool ending_ FATHOM_GUARDED_BY(mutex_) = false;
  std::atomic<bool> urgent_ = false;
  std::thread thread_;
};

}  // namespace fathom::apps
