#pragma once
// MaskMailbox: where the masks of submitted steps wait for the sampling of their step (late masks).
//
//   mailbox.put(std::move(masks));                              // any thread
//   SharedMasks masks = mailbox.take(7);                        // the runner's; blocks until they are there
//   SliceMaskWords words = masks_of_slices(batch, *masks, vocab_size);
//   words[i]                                                    // empty: slice i has no mask
//
// Thread-safe. close() ends every wait with none, now and from then on.

#include <span>
#include <vector>

#include "base/mutex.h"
#include "core/batch.h"
#include "runner/runner.h"

namespace fathom::runner {

class MaskMailbox {
 public:
  // REQUIRES: the masks of this step have not been put before.
  void put(SharedMasks masks);
  SharedMasks take(int64_t step_id);
  void close();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<SharedMasks> waiting_ FATHOM_GUARDED_BY(mutex_);  // at most one per step in flight
  int64_t last_taken_ FATHOM_GUARDED_BY(mutex_) = -1;
  bool closed_ FATHOM_GUARDED_BY(mutex_) = false;
};

bool wants_masks(const core::Batch& batch);

// u64[sampled rows, ceil(vocab_size / 64)] of each slice; views into the StepMasks.
using SliceMaskWords = std::vector<std::span<const uint64_t>>;

// REQUIRES: the masks are those that the batch wants, in size and number (checked).
SliceMaskWords masks_of_slices(const core::Batch& batch, const core::StepMasks& masks,
                               int vocab_size);

}  // namespace fathom::runner
