#pragma once
// StepExecutor: runs one batch at a time on a stream, from deltas to results. Everything it needs on the
// device is allocated in the constructor, for the largest step.
//
//   StepExecutor executor(model, {.max_slots = 64, .max_batch_tokens = 2048}, *stream);
//   executor.plan_scratch();                           // the stream's scratch gets its final size
//   executor.set_kv(KvStorage::allocate(...));
//   core::StepResult result = executor.run(batch, masks);  // waits for the stream, and for masks if wanted
//
// Owns slots, sampler, workspace and cache; model and stream outlive it. One thread at a time.
// Failpoint "model_runner.logits": the first row of logits of the step becomes NaN.

#include <optional>

#include "core/batch.h"
#include "model/model.h"
#include "ops/staged_buffer.h"
#include "runner/mask_mailbox.h"
#include "runner/slot_table.h"
#include "runner/step_layout.h"
#include "sampling/sampler.h"

namespace fathom::runner {

struct StepExecutorConfig {
  int max_slots = 0;
  int max_batch_tokens = 0;  // query tokens of one step
  int64_t max_context_tokens = 0;
};

// Device memory of a step, in parts.
struct StepMemory {
  int64_t workspace_bytes = 0;  // the model's activations
  int64_t logits_bytes = 0;     // logits and the rows they come from
  int64_t slots_bytes = 0;      // block tables, step inputs
  int64_t sampler_bytes = 0;    // penalty counts, parameters, results
  int64_t scratch_bytes = 0;    // the operators'
  int64_t total_bytes() const {
    return workspace_bytes + logits_bytes + slots_bytes + sampler_bytes + scratch_bytes;
  }
};

class StepExecutor {
 public:
  // Throws StartupError when there is no room.
  StepExecutor(const model::Model& model, const StepExecutorConfig& config, ops::Stream& stream);

  void set_kv(model::KvStorage kv) { kv_ = std::move(kv); }
  // The masks of the batch, if it wants some, are taken once the forward pass is under way. If the mailbox is
  // closed, the step samples without.
  core::StepResult run(const core::Batch& batch, MaskMailbox& masks);
  // Measures the largest steps without computing them, then allocates the scratch that they need: from here
  // on nothing grows it, and the memory of a step has its pages. REQUIRES: all slots are free, as they are
  // afterwards. Throws StartupError when there is no room.
  void plan_scratch();
  StepMemory memory() const;

 private:
  template <class T>
  using Array = ops::StagedBuffer::Array<T>;
  // Sent with every step.
  struct Inputs {
    Array<int32_t> slice_slot, query_start, given_token, relative, commit_row, penalty_row;
    Array<uint64_t> tree_mask;
    Array<int32_t> row_tokens;  // query token of each row of logits
  };
  // Written by step_inputs; sized for the largest step.
  struct DeviceInputs {
    tensor::Tensor token_ids, positions, kv_slots, kv_len, tables;
  };

  void carve_inputs(tensor::Arena& arena);
  void carve_logits(tensor::Arena& arena);
  void apply_deltas(const core::Batch& batch);
  void check_penalties(const core::Batch& batch) const;
  void compute(const core::Batch& batch, const StepLayout& layout, MaskMailbox& masks);
  // Waits for the masks; returned to keep them until the rows are sampled.
  std::optional<core::StepMasks> take_masks(const core::Batch& batch, const StepLayout& layout,
                                            MaskMailbox& masks);
  void stage_inputs(const StepLayout& layout);
  // act[tokens, hidden_size]
  tensor::Tensor forward(const StepLayout& layout);
  model::ForwardBatch prepare_forward(const StepLayout& layout);
  void sample_rows(const StepLayout& layout, const tensor::Tensor& hidden);
  void commit();
  void release_slots(const core::Batch& batch);
  void collect(const StepLayout& layout, core::StepResult& result) const;
  void measure(const core::Batch& batch, const AttentionFormOf& form_of);
  // As many sequences of so many query tokens (or what the context holds) as fit a step.
  core::Batch most_tokens(int64_t tokens_of_sequence, bool at_end_of_context) const;

  const model::Model& model_;
  StepExecutorConfig config_;
  ops::Stream& stream_;
  int block_tokens_;
  int64_t max_logit_rows_;
  model::Workspace workspace_;
  SlotTable slots_;
  sampling::Sampler sampler_;
  ops::StagedBuffer input_memory_;
  Inputs inputs_;
  ops::DeviceBuffer device_input_memory_;
  DeviceInputs device_inputs_;
  ops::DeviceBuffer logits_memory_;
  tensor::Tensor row_hidden_;  // act[max_logit_rows, hidden_size]
  tensor::Tensor logits_;      // f32[max_logit_rows, vocab_size]
  std::optional<model::KvStorage> kv_;
};

}  // namespace fathom::runner
