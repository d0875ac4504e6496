#pragma once
// StepTimer: where the time of one step went, told by events that lie in the stream between its parts, outside of
// captured graphs.
//
//   timer.reset();                  // a step that computes nothing marks nothing
//   timer.begin(true);              // its inputs have been sent; false: nobody asks for the parts of this one
//   timer.forward_done();           // behind layers and logits
//   timer.masks_came();             // only a step with parts that waits for masks; before they are sent
//   timer.end();                    // behind the copies of its results
//   timer.wait();                   // until the device has come there
//   timer.tell(result);
//
// On a stream that runs ahead the times are the device's: it comes to begin() when the step before is done, however
// long ago the host enqueued it. Telling them waits for nothing more than wait() did. Each step in flight needs a
// timer of its own, whose events are made once. The stream outlives it. One thread marks a step, then another may
// wait for it and tell.

#include <memory>

#include "core/batch.h"
#include "ops/stream.h"

namespace fathom::runner {

class StepTimer {
 public:
  explicit StepTimer(ops::Stream& stream);

  // REQUIRES: what was marked before has been waited for.
  void reset();
  void begin(bool with_parts);
  void forward_done() {
    if (has_parts_) forward_done_->record();
  }
  void masks_came();
  void end() { end_->record(); }

  // From reset() on without begin() there is nothing to wait for, and all parts are 0. Without parts they are left as
  // they are.
  void wait();
  // Sets forward_seconds, mask_wait_seconds and sampling_seconds, and makes wall_seconds at least their sum.
  void tell(core::StepResult& result) const;

 private:
  std::unique_ptr<ops::Event> begin_, forward_done_, masks_came_, end_;
  bool has_begun_ = false, has_parts_ = false, has_masks_ = false;
};

}  // namespace fathom::runner
