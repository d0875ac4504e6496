#pragma once
// Drafter: what a StepExecutor needs to speculate beside slots, model and sampler: the drafts of the slots, and the
// operators that verify them and propose new ones (ops/verify.h, ops/top_k.h, ops/draft.h). Everything is enqueued; how
// many drafts hold comes out with the results.
//
//   Drafter drafter(model, {.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, ...});
//   drafter.admit(admission, writes);
//   drafter.stage(layout, frame, stream);
//   drafter.complete_inputs(step, sampler, stream);       // after step_inputs, before the forward pass
//   ... forward, sample ...
//   drafter.accept(step, sampler, stream);                // in the place of commit_tokens
//   drafter.propose(step, hidden, batch, stream);         // the drafter's rows, then drafts
//   drafter.fetch(stream);  ...  drafter.outcome(frame, layout, slice);
//
// In a step the drafter first computes a row for every token that stays, from the target's hidden states (batch and
// buffers are those of the forward pass), then looks ahead. Rows behind a sequence that need another block lie in one
// of the slot's own, behind the blocks of the cache in the drafter's layer (KvStorage, num_spare_blocks).
// Owns its device memory. One thread, the stream's, uses it; another one may call outcome() of a frame that was
// fetched.

#include <array>
#include <optional>
#include <vector>

#include "core/batch.h"
#include "model/model.h"
#include "ops/staged_buffer.h"
#include "ops/verify.h"
#include "runner/runner.h"
#include "runner/slot_table.h"
#include "runner/step_layout.h"
#include "sampling/sampler.h"

namespace fathom::runner {

struct DrafterConfig {
  DrafterInfo shape{};
  // Accept drafts with this probability each, whatever the target says: for measurements with random weights.
  std::optional<float> simulated_agreement{};
  int max_slots = 0;
  int max_batch_tokens = 0;  // query tokens of a step
  int max_blocks = 0;        // of one sequence
  int64_t max_logit_rows = 0;
};

// Query tokens that the largest pass of a drafter has.
int64_t max_draft_tokens(const DrafterInfo& shape, int max_slots);

// The tensors of the step that the forward pass reads.
struct DraftStep {
  const StepLayout& layout;
  tensor::Tensor slice_slot, query_start, row_tokens, penalty_row;
  tensor::Tensor token_ids, positions, kv_rows, kv_len, tables, tree_mask;
};

// What came out of a slice that goes on from its slot.
struct DraftOutcome {
  struct Token {
    int32_t row = 0, token = -1;  // where it was sampled
  };
  bool failed = false;         // nothing could be chosen after the last token
  int32_t first_position = 0;  // of the last token
  int num_verified = 0;
  std::vector<Token> tokens{};
};

class Drafter {
 public:
  static constexpr int kNumFrames = sampling::Sampler::kNumFrames;

  // Throws StartupError when there is no room.
  Drafter(const model::Model& model, const DrafterConfig& config, const SlotTable& slots);

  const DrafterInfo& shape() const { return config_.shape; }
  bool is_chain() const { return config_.shape.top_k == 1; }
  int64_t num_bytes() const {
    return memory_.num_bytes() + staged_.num_bytes() + results_.num_bytes();
  }

  // What changes on the device is put into `writes`.
  void admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes) const;
  // REQUIRES: the frame's last step has been collected.
  void stage(const StepLayout& layout, int frame, ops::Stream& stream);
  void complete_inputs(const DraftStep& step, const sampling::Sampler& sampler,
                       ops::Stream& stream) const;
  void accept(const DraftStep& step, const sampling::Sampler& sampler, ops::Stream& stream) const;
  // hidden act[tokens, hidden_size]: forward()'s. logits f32[max_logit_rows, vocab_size], free to use.
  struct Pass {
    const model::ForwardBatch& batch;
    const tensor::Tensor& hidden;
    const tensor::Tensor& logits;
    const model::KvStorage& kv;
    model::Workspace& workspace;
  };
  void propose(const DraftStep& step, const Pass& pass, ops::Stream& stream) const;
  // The collectives of a step in which this lane has no slice and others draft to layout.num_levels.
  void propose_none(const StepLayout& layout, const Pass& pass, ops::Stream& stream) const;
  void fetch(ops::Stream& stream) const { results_.download(stream); }

  // Of the layout's i-th slice, which goes on from its slot.
  DraftOutcome outcome(int frame, const StepLayout& layout, size_t slice) const;
  // REQUIRES: the step asked for some.
  std::vector<core::Draft> drafts(int frame, size_t slice) const;

 private:
  template <class T>
  using Array = ops::StagedBuffer::Array<T>;
  struct Inputs {
    Array<int32_t> num_wanted, first_row, num_asked, next_given, row_slot, row_draft;
  };
  struct Results {
    Array<int32_t> num_out, num_verified, first_position, out_rows, out_tokens;
    Array<int32_t> drafts, parents, count;
  };
  // Of the slots; and what the passes of a step compute in.
  struct Memory {
    tensor::Tensor drafts, parents, num_drafts, max_rows;
    tensor::Tensor source, next_ids, draft_positions, draft_kv_rows, draft_row, draft_row_kv;
    tensor::Tensor moved_hidden, root_hidden, node_hidden, ranked_hidden;
    tensor::Tensor node_token, node_parent, node_score, fed;
    tensor::Tensor token_ids, positions, kv_rows, kv_len, tables, tree_mask, from, logit_rows;
    std::vector<tensor::Tensor> query_start;  // [level - 1]: i32[slots + 1], steps of its width
    tensor::Tensor top_ids, top_logprobs;     // of the nodes of the level before
  };

  void carve(tensor::Arena& arena);
  void fill_constants();
  ops::DraftSlots draft_slots() const;
  int64_t most_nodes() const;
  int64_t most_fed() const;
  model::KeptTokens kept_tokens(const StepLayout& layout) const;
  // Continuations of the rows: the drafter's logits, then their best.
  void rank(const tensor::Tensor& rows, const tensor::Tensor& logits, ops::Stream& stream) const;
  void grow(const DraftStep& step, int level, int num_levels, const model::KvStorage& kv,
            ops::Stream& stream) const;
  tensor::Tensor run_level(int level, const StepLayout& layout, const tensor::Tensor& before,
                           const Pass& pass, ops::Stream& stream) const;

  const model::Model& model_;
  DrafterConfig config_;
  const SlotTable& slots_;
  int block_tokens_;
  ops::DeviceBuffer memory_;
  Memory m_;
  ops::StagedBuffer staged_, results_;
  Inputs inputs_;
  std::array<Results, kNumFrames> frames_;
  int frame_ = 0;
};

}  // namespace fathom::runner
