#pragma once
// Background: threads beside the program that it waits for before it ends. exit() takes apart what libraries consist of
// in an order that nobody here decides, so none may still be opened or asked for anything then.
//
//   const std::shared_future<Plan> plan = background().start(make_plan);   // on a thread of its own
//   background().wait();                                                   // before main() ends
//
// Internal to cuda/. Thread-safe.

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

namespace fathom::cuda {

class Background {
 public:
  template <class Work>
  auto start(Work work) {
    const auto result = std::async(std::launch::async, std::move(work)).share();
    const std::lock_guard lock(mutex_);
    forget_ended();
    started_.push_back({.wait = [result] { result.wait(); },
                        .has_result =
                            [result] {
                              return result.wait_for(std::chrono::seconds(0)) ==
                                     std::future_status::ready;
                            }});
    return result;
  }

  // Returns when all threads that were started have ended, those among them that others of them started.
  void wait() {
    for (std::vector<Started> running = list(); !running.empty(); running = list())
      for (const Started& one : running) one.wait();
  }

 private:
  struct Started {
    std::function<void()> wait;  // for the thread's end, not only for its result
    std::function<bool()> has_result;

    bool has_ended() const {
      if (!has_result()) return false;
      wait();
      return true;
    }
  };

  void forget_ended() {
    std::erase_if(started_, [](const Started& one) { return one.has_ended(); });
  }
  std::vector<Started> list() {
    const std::lock_guard lock(mutex_);
    forget_ended();
    return started_;
  }

  std::mutex mutex_;
  std::vector<Started> started_;  // guarded by mutex_
};

// The program's. Neither it nor what its threads make is ever destroyed: at the end of the process the libraries that
// they use may be gone before them.
inline Background& background() {
  static Background& all = *new Background;
  return all;
}

}  // namespace fathom::cuda
