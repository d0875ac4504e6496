#include "runner/mask_mailbox.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/token_mask.h"

namespace fathom::runner {
void MaskMailbox::put(SharedMasks masks) {
  {
    const MutexLock lock(mutex_);
    const bool is_known =
        std::any_of(waiting_.begin(), waiting_.end(),
                    [&](const SharedMasks& other) { return other->step_id == masks->step_id; });
    FATHOM_CHECK(!is_known && masks->step_id > last_taken_,
                 "the masks of step " << masks->step_id << " came twice");
    waiting_.push_back(std::move(masks));
  }
  changed_.notify_all();
}

SharedMasks MaskMailbox::take(int64_t step_id) {
  MutexLock lock(mutex_);
  auto found = waiting_.end();
  const auto has_come = [&]() FATHOM_REQUIRES(mutex_) {
    found = std::find_if(waiting_.begin(), waiting_.end(),
                         [&](const SharedMasks& masks) { return masks->step_id == step_id; });
    return closed_ || found != waiting_.end();
  };
  // A rank looks up while it waits: others that wait for it see that it does not stand still.
  while (!changed_.wait_for(lock, std::chrono::milliseconds(100), has_come)) {
  }
  if (found == waiting_.end()) return nullptr;
  SharedMasks masks = std::move(*found);
  waiting_.erase(found);
  last_taken_ = step_id;
  return masks;
}

void MaskMailbox::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool wants_masks(const core::Batch& batch) {
  return std::any_of(batch.slices.begin(), batch.slices.end(),
                     [](const core::SequenceSlice& slice) { return slice.wants_mask; });
}

SliceMaskWords masks_of_slices(const core::Batch& batch, const core::StepMasks& masks,
                               int vocab_size) {
  const auto row_words = static_cast<size_t>(num_mask_words(vocab_size));
  SliceMaskWords words(batch.slices.size());
  std::vector<bool> has_mask(batch.slices.size(), false);
  for (const core::SliceMask& mask : masks.masks) {
    const auto index = static_cast<size_t>(mask.slice_idx);
    FATHOM_CHECK(mask.slice_idx >= 0 && index < batch.slices.size() &&
                     batch.slices[index].wants_mask && !has_mask[index],
                 "a mask for slice " << mask.slice_idx << " of step " << batch.step_id
                                     << ", which wants none");
    const auto rows = static_cast<size_t>(batch.slices[index].num_sampled_rows());
    FATHOM_CHECK(mask.words.size() == rows * row_words,
                 "the mask of slice " << mask.slice_idx << " has " << mask.words.size()
                                      << " words, " << rows << " rows of " << row_words
                                      << " wanted");
    has_mask[index] = true;
    words[index] = mask.words;
  }
  for (size_t i = 0; i < batch.slices.size(); ++i)
    FATHOM_CHECK(has_mask[i] == batch.slices[i].wants_mask,
                 "slice " << i << " of step " << batch.step_id << " got no mask");
  return words;
}

}  // namespace fathom::runner
