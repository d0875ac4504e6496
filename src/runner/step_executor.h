#pragma once
// StepExecutor: runs batches on a stream, from deltas to results. Everything it needs on the device is allocated in
// the constructor, for the largest step.
//
//   StepExecutor executor(model, {.max_slots = 64, .max_batch_tokens = 2048}, *stream);
//   executor.plan_scratch();                           // the stream's scratch gets its final size
//   executor.set_kv(KvStorage::allocate(...));
//   executor.capture_graphs();
//   executor.enqueue(batch, masks, 0);                 // waits for nothing but the masks, if some are wanted
//   executor.enqueue(next_batch, masks, 1);
//   core::StepResult result = executor.collect(0);     // waits for the step in frame 0
//
// A step lies in one of two frames: its host memory and what is needed to read its results. Steps of decodes alone
// are padded to one of the sizes that were captured, and replayed.
//
// Owns slots, sampler, workspace and cache; model and stream outlive it. One thread enqueues; another may collect
// at the same time, from the other frame.
// Failpoints "model_runner.logits": the first row of logits of the step becomes NaN; "model_runner.token": its first
// token becomes by far the likeliest; "model_runner.lane_rows": the step is taken for one in which the first lane has a
// token more, a fault that must be noticed. Of several ranks each has its own, "model_runner.logits.1" for rank 1.

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/batch.h"
#include "model/model.h"
#include "runner/captured_steps.h"
#include "runner/drafter.h"
#include "runner/mask_mailbox.h"
#include "runner/slot_table.h"
#include "runner/step_inputs.h"
#include "runner/step_layout.h"
#include "runner/step_timer.h"
#include "sampling/sampler.h"

namespace fathom::runner {

struct StepExecutorConfig {
  int max_slots = 0;
  int max_batch_tokens = 0;  // query tokens of one step
  int64_t max_context_tokens = 0;
  // Numbers of sequences for which a step of decodes is captured, rising; none above max_slots.
  std::vector<int> graph_batch_sizes{};
  DrafterInfo drafter{};
  std::optional<float> simulated_agreement{};  // drafter.h
  int steps_per_timing = 1;                    // model_runner.h
  GetCodeVersion code_version{};
};

// Device memory of a step, in parts.
struct StepMemory {
  int64_t workspace_bytes = 0;  // the model's activations
  int64_t logits_bytes = 0;     // logits and the rows they come from
  int64_t slots_bytes = 0;      // block tables, step inputs
  int64_t sampler_bytes = 0;    // penalty counts, parameters, results
  int64_t scratch_bytes = 0;    // the operators'
  int64_t drafter_bytes = 0;    // drafts, and what they are made in
  int64_t total_bytes() const {
    return workspace_bytes + logits_bytes + slots_bytes + sampler_bytes + scratch_bytes +
           drafter_bytes;
  }
};

class StepExecutor {
 public:
  // Throws StartupError when there is no room.
  StepExecutor(const model::Model& model, const StepExecutorConfig& config, ops::Stream& stream);

  static constexpr int kNumFrames = sampling::Sampler::kNumFrames;

  void set_kv(model::KvStorage kv) { kv_ = std::move(kv); }
  // Captures the decodes of all sizes. REQUIRES: plan_scratch(), set_kv(), no step was enqueued.
  void capture_graphs();
  // Captures one of them again whose operators have other kernels by now. False: none has. REQUIRES: every step that
  // was enqueued has been collected.
  bool renew_graph();
  // The masks of the batch, if it wants some, are taken once the forward pass is under way. If the mailbox is
  // closed, the step samples without. REQUIRES: the frame's last step has been collected.
  void enqueue(const core::Batch& batch, MaskMailbox& masks, int frame);
  core::StepResult collect(int frame);
  // Measures the largest steps without computing them, then allocates the scratch that they need: from here
  // on nothing grows it, and the memory of a step has its pages. REQUIRES: all slots are free, as they are
  // afterwards. Throws StartupError when there is no room.
  void plan_scratch();
  StepMemory memory() const;

 private:
  using Clock = std::chrono::steady_clock;
  // A step that was enqueued.
  struct Frame {
    core::StepResult result;
    StepLayout layout;
    std::optional<StepTimer> timer;  // made once
    Clock::time_point enqueued;
  };
  void carve_logits(tensor::Arena& arena);
  void apply_deltas(const core::Batch& batch, int frame);
  void check_penalties(const core::Batch& batch) const;
  const DrafterInfo& drafter() const { return config_.drafter; }
  int max_blocks() const;
  // Of a lane without slices while another has some: the collectives of that step, with no row of its own.
  void compute_idle(const StepLayout& layout, StepTimer& timer);
  StepLayout lay_out(const core::Batch& batch) const;
  CapturedSteps::Parts captured_parts();
  void compute(const core::Batch& batch, StepLayout& layout, MaskMailbox& masks, int frame);
  // Waits for the masks; returned to keep them until the rows are sampled.
  SharedMasks take_masks(const core::Batch& batch, const StepLayout& layout, MaskMailbox& masks);
  void stage_inputs(const StepLayout& layout, int frame);
  // act[tokens, hidden_size]. The logits of the step, or its first max_logit_rows_ of them, are in logits_ then.
  tensor::Tensor prepare_and_forward(const StepLayout& layout);
  void plant_logits();
  // REQUIRES: prepare_and_forward() was the last to write logits_.
  void sample_rows(const StepLayout& layout, const tensor::Tensor& hidden);
  tensor::Tensor compute_logits(int64_t begin, int64_t end, const tensor::Tensor& hidden);
  // The tokens become the slots'; with a drafter its rows and drafts follow.
  void commit(const StepLayout& layout, const tensor::Tensor& hidden);
  core::StepResult collect_rows(Frame& frame, int frame_idx);
  void collect_drafts(const StepLayout& layout, int frame_idx, core::StepResult& result);
  void release_slots(const core::Batch& batch);
  void measure(const core::Batch& batch, const AttentionFormOf& form_of);
  // As many sequences of so many query tokens (or what the context holds) as fit a step of `tokens`.
  core::Batch most_tokens(int64_t tokens, int64_t tokens_of_sequence, bool at_end_of_context) const;
  // Besides so many tokens here, what the other lanes can have at most.
  core::StepShape largest_shape(int64_t tokens, int64_t slices) const;

  const model::Model& model_;
  const std::string failpoint_suffix_;  // the rank's
  StepExecutorConfig config_;
  ops::Stream& stream_;
  int block_tokens_;
  int64_t max_logit_rows_;
  model::Workspace workspace_;
  SlotTable slots_;
  sampling::Sampler sampler_;
  std::optional<Drafter> drafter_;
  ops::DeviceWrites writes_;
  StepInputs inputs_;
  CapturedSteps captured_;
  ops::DeviceBuffer logits_memory_;
  tensor::Tensor row_hidden_;  // act[max_logit_rows, hidden_size]
  tensor::Tensor logits_;      // f32[max_logit_rows, vocab_size]
  std::optional<model::KvStorage> kv_;
  std::array<Frame, kNumFrames> frames_;
  Clock::time_point last_done_{};  // collector's side
};

}  // namespace fathom::runner
