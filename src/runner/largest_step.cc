// The largest steps, measured instead of run: what StepExecutor does before the memory plan is made.

#include <algorithm>

#include "runner/step_executor.h"

namespace fathom::runner {
namespace {

using model::AttentionForm;

// The whole path of the sampler, with two rows of logits for every query token.
core::SamplingParams measured_sampling() {
  core::SamplingParams params;
  params.top_p = 0.9f;
  params.top_k = 50;
  params.num_top_logprobs = core::kMaxTopLogprobs;
  params.return_prompt_logprobs = true;
  return params;
}

struct Sequence {
  int32_t slot = 0;
  int64_t num_cached = 0, num_tokens = 0;
  int block_tokens = 0;
  int num_drafts = 0;  // to propose
};

// Nothing is read or written where the blocks are, so one will do for all. The prompt is one token longer than
// the rows, so that every query token has a successor and with it a row of logits.
void add_sequence(core::Batch& batch, const Sequence& sequence) {
  const int64_t rows = sequence.num_cached + sequence.num_tokens;
  batch.admissions.push_back({.slot = sequence.slot,
                              .num_cached_tokens = static_cast<int32_t>(sequence.num_cached),
                              .prompt = std::vector<int32_t>(static_cast<size_t>(rows + 1)),
                              .sampling = measured_sampling()});
  const int64_t num_blocks = (rows + sequence.block_tokens - 1) / sequence.block_tokens;
  batch.block_appends.push_back(
      {.slot = sequence.slot,
       .kv_group = 0,
       .block_ids = std::vector<int32_t>(static_cast<size_t>(num_blocks))});
  batch.slices.push_back({.slot = sequence.slot,
                          .num_tokens = static_cast<int>(sequence.num_tokens),
                          .tokens = std::vector<int32_t>(static_cast<size_t>(sequence.num_tokens)),
                          .outputs = core::Outputs::kAll,
                          .num_drafts_to_propose = sequence.num_drafts});
  batch.releases.push_back(sequence.slot);
}

// The drafter then only writes its rows.
core::Batch without_drafts(core::Batch batch) {
  for (core::SequenceSlice& slice : batch.slices) slice.num_drafts_to_propose = 0;
  return batch;
}

AttentionFormOf always(AttentionForm form) {
  return [form](int64_t, int64_t) { return form; };
}

}  // namespace

core::Batch StepExecutor::most_tokens(int64_t tokens, int64_t tokens_of_sequence,
                                      bool at_end_of_context) const {
  core::Batch batch;
  tokens = std::min<int64_t>(tokens, config_.max_batch_tokens);
  int64_t tokens_left = tokens;
  for (int32_t slot = 0; slot < config_.max_slots && tokens_left > 0; ++slot) {
    const int64_t num_tokens =
        std::min({tokens_left, tokens_of_sequence, config_.max_context_tokens});
    add_sequence(batch,
                 {.slot = slot,
                  .num_cached = at_end_of_context ? config_.max_context_tokens - num_tokens : 0,
                  .num_tokens = num_tokens,
                  .block_tokens = block_tokens_,
                  .num_drafts = drafter().max_drafts()});
    tokens_left -= num_tokens;
  }
  batch.shape = largest_shape(tokens - tokens_left, std::ssize(batch.slices));
  return batch;
}

core::StepShape StepExecutor::largest_shape(int64_t tokens, int64_t slices) const {
  const comm::Communicator& lanes = *model_.rank().dp;
  core::StepShape shape;
  if (lanes.size() == 1) return shape;
  const auto num_lanes = static_cast<size_t>(lanes.size()), own = static_cast<size_t>(lanes.rank());
  shape.lane_tokens.resize(num_lanes);
  shape.lane_tokens[(own + 1) % num_lanes] = config_.max_batch_tokens - static_cast<int>(tokens);
  shape.lane_tokens[own] = static_cast<int32_t>(tokens);
  shape.lane_slices.assign(num_lanes, config_.max_slots);
  shape.lane_slices[own] = static_cast<int32_t>(slices);
  return shape;
}

void StepExecutor::measure(const core::Batch& batch, const AttentionFormOf& form_of) {
  apply_deltas(batch, /*frame=*/0);
  StepLayout layout = lay_out_step(batch, slots_, block_tokens_, form_of, drafter());
  layout.table_blocks = max_blocks();  // as where one sequence is as long as it may be
  stage_inputs(layout, /*frame=*/0);
  const tensor::Tensor hidden = prepare_and_forward(layout);
  sample_rows(layout, hidden);
  commit(layout, hidden);
  release_slots(batch);
}

// Scratch never shrinks with more tokens and is a function of shapes (ops/backend.h), so no step needs more
// than these: the two forms of attention with all the tokens that they can have, the expanded one over the
// longest context, the decode of every slot, and the largest step that takes a fused operator with a limit.
void StepExecutor::plan_scratch() {
  kv_ = model::KvStorage::unbacked(model_.kv_groups().at(0));
  stream_.begin_measuring();
  const int64_t most = config_.max_batch_tokens;
  measure(most_tokens(most, most, true), always(AttentionForm::kExpanded));
  if (drafter_)
    measure(without_drafts(most_tokens(most, most, true)), always(AttentionForm::kExpanded));
  if (const int64_t absorbed = model_.max_absorbed_tokens(); absorbed > 0)
    measure(most_tokens(most, absorbed, false), always(AttentionForm::kAbsorbed));
  const AttentionFormOf form = [this](int64_t num_tokens, int64_t kv_begin) {
    return model_.attention_form(num_tokens, kv_begin);
  };
  measure(most_tokens(most, 1, false), form);
  // It may take calls of some types with fewer tokens alone.
  for (int64_t fused = stream_.backend().moe_experts_shared.max_tokens; fused > 0; fused /= 2)
    measure(most_tokens(fused, fused, false), form);
  stream_.seal_scratch();
  kv_.reset();
  workspace_.touch(stream_);
  inputs_.touch(stream_);
  stream_.touch(logits_memory_.data(), logits_memory_.num_bytes());
}

}  // namespace fathom::runner
