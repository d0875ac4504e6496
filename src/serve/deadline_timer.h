#pragma once
// DeadlineTimer: runs tasks some time from now, on a thread of its own. For limits of a few requests, not
// for anything per token.
//
//   DeadlineTimer timer;
//   timer.after(std::chrono::seconds(20), [exchange] { ... });
//
// Thread-safe. Tasks are short and do not throw. The destructor drops what is not due yet.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace fathom::serve {

class DeadlineTimer {
 public:
  DeadlineTimer() : thread_([this] { run(); }) {}
  ~DeadlineTimer() { stop(); }
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Drops what is not due yet and joins the thread; after() does nothing from here on.
  void stop();
  void after(std::chrono::milliseconds delay, std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace fathom::serve
