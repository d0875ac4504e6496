#include "runner/step_timer.h"

#include <algorithm>

namespace fathom::runner {

StepTimer::StepTimer(ops::Stream& stream)
    : begin_(stream.make_event()),
      forward_done_(stream.make_event()),
      masks_came_(stream.make_event()),
      end_(stream.make_event()) {}

void StepTimer::reset() { has_begun_ = has_parts_ = has_masks_ = false; }

void StepTimer::begin(bool with_parts) {
  has_begun_ = true;
  has_parts_ = with_parts;
  if (with_parts) begin_->record();
}

void StepTimer::masks_came() {
  has_masks_ = true;
  masks_came_->record();
}

void StepTimer::wait() {
  if (has_begun_) end_->wait();
}

void StepTimer::tell(core::StepResult& result) const {
  if (has_begun_ && !has_parts_) return;
  result.forward_seconds = has_begun_ ? forward_done_->seconds_since(*begin_) : 0;
  result.mask_wait_seconds = has_masks_ ? masks_came_->seconds_since(*forward_done_) : 0;
  const ops::Event& sampling_begins = has_masks_ ? *masks_came_ : *forward_done_;
  result.sampling_seconds = has_begun_ ? end_->seconds_since(sampling_begins) : 0;
  // The host takes a step's time from when it collected the step before. If it was late to do that, this step looks
  // shorter than the device knows it was.
  result.wall_seconds =
      std::max(result.wall_seconds,
               result.forward_seconds + result.mask_wait_seconds + result.sampling_seconds);
}

}  // namespace fathom::runner
