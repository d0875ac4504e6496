#pragma once
// StepInputs: what a step sends to the device, and the inputs of the model that the device makes of it.
//
//   inputs.stage(layout, sampler, frame, stream);      // the host's arrays, and their copy
//   inputs.prepare(layout, slots, stream);             // the model's inputs, from these and the slots
//   model.forward(inputs.forward_batch(layout), ...);
//
// Memory is allocated in the constructor, for the largest step; the host's arrays once for each frame. Not
// synchronised.

#include "model/model.h"
#include "ops/device_buffer.h"
#include "ops/staged_buffer.h"
#include "runner/drafter.h"
#include "runner/slot_table.h"
#include "runner/step_layout.h"
#include "sampling/sampler.h"

namespace fathom::runner {

struct StepInputsConfig {
  int max_slots = 0, max_batch_tokens = 0;
  int max_rows = 0;    // of logits
  int max_blocks = 0;  // of a slot
  int block_tokens = 0;
  int num_frames = 1;
};

class StepInputs {
 public:
  // Throws StartupError when there is no room.
  StepInputs(const StepInputsConfig& config, const ops::Backend& backend);

  // Of the step in the frame, whose last step has been collected.
  void stage(const StepLayout& layout, const sampling::Sampler& sampler, int frame,
             ops::Stream& stream);
  void prepare(const StepLayout& layout, const SlotTable& slots, ops::Stream& stream);

  // Views of what stage() and prepare() wrote. REQUIRES: the same layout.
  model::ForwardBatch forward_batch(const StepLayout& layout) const;
  DraftStep draft_step(const StepLayout& layout) const;
  // Of a lane without slices in a step of others.
  model::ForwardBatch idle_batch(const StepLayout& layout) const;
  const tensor::Tensor& slice_slot() const { return sent_.slice_slot.device; }
  const tensor::Tensor& query_start() const { return sent_.query_start.device; }
  const tensor::Tensor& commit_row() const { return sent_.commit_row.device; }
  const tensor::Tensor& penalty_row() const { return sent_.penalty_row.device; }
  // Query token of each row of logits.
  const tensor::Tensor& row_tokens() const { return sent_.row_tokens.device; }

  int64_t num_bytes() const { return made_memory_.num_bytes() + sent_memory_.num_bytes(); }
  void touch(ops::Stream& stream) const {
    stream.touch(made_memory_.data(), made_memory_.num_bytes());
  }

 private:
  template <class T>
  using Array = ops::StagedBuffer::Array<T>;
  struct Sent {
    Array<int32_t> slice_slot, query_start, given_token, relative, commit_row, penalty_row;
    Array<uint64_t> tree_mask;
    Array<int32_t> row_tokens;
  };
  // By step_inputs; sized for the largest step.
  struct Made {
    tensor::Tensor token_ids, positions, kv_rows, kv_len, tables;
  };

  void carve(tensor::Arena& arena);
  Made made(const StepLayout& layout) const;

  const StepInputsConfig config_;
  ops::StagedBuffer sent_memory_;
  Sent sent_;
  ops::DeviceBuffer made_memory_;
  Made made_;
};

}  // namespace fathom::runner
