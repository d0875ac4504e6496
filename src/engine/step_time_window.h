#pragma once
// StepTimeWindow: the longest step of the last second or two, and what had been predicted for it, for gauges.
//
//   StepTimeWindow window;
//   window.add(now, {.seconds = 0.043, .predicted_seconds = 0.04});
//   window.longest().seconds;
//   window.clear();                                    // idle
//
// Plain data of one thread.

#include <chrono>

namespace fathom::engine {

class StepTimeWindow {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Step {
    double seconds = 0, predicted_seconds = 0;
  };

  void add(TimePoint now, const Step& step) {
    if (now - begin_ >= std::chrono::seconds(1)) {
      // After a pause what was before it is over, too.
      before_ = now - begin_ >= std::chrono::seconds(2) ? Step{} : current_;
      current_ = {};
      begin_ = now;
    }
    if (step.seconds > current_.seconds) current_ = step;
  }
  void clear() { before_ = current_ = {}; }
  const Step& longest() const { return before_.seconds > current_.seconds ? before_ : current_; }

 private:
  TimePoint begin_{};
  Step before_{}, current_{};
};

}  // namespace fathom::engine
