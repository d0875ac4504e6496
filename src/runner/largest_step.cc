// The largest step: what StepExecutor runs once before the memory plan is made.

#include <algorithm>
#include <numeric>

#include "runner/step_executor.h"

namespace fathom::runner {
namespace {

// Exercises the sampler's whole path.
core::SamplingParams measured_sampling() {
  core::SamplingParams params;
  params.top_p = 0.9f;
  params.top_k = 50;
  params.num_top_logprobs = 20;
  return params;
}

// A sequence in `slot` with num_cached rows and num_tokens query tokens. Its blocks are those of a region
// of its own, or all the same one: what is computed does not matter, and where is not checked.
void add_sequence(core::Batch& batch, int32_t slot, int64_t num_cached, int num_tokens,
                  std::vector<int32_t> block_ids) {
  batch.admissions.push_back(
      {.slot = slot,
       .num_cached_tokens = static_cast<int32_t>(num_cached),
       .prompt = std::vector<int32_t>(static_cast<size_t>(num_cached + num_tokens), 0),
       .sampling = measured_sampling()});
  batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = std::move(block_ids)});
  batch.slices.push_back({.slot = slot,
                          .num_tokens = num_tokens,
                          .tokens = std::vector<int32_t>(static_cast<size_t>(num_tokens), 0)});
  batch.releases.push_back(slot);
}

}  // namespace

core::Batch StepExecutor::largest_prefill() const {
  core::Batch batch;
  int64_t tokens_left = config_.max_batch_tokens;
  int32_t next_block = 0;
  for (int32_t slot = 0; slot < config_.max_slots && tokens_left > 0; ++slot) {
    const int64_t num_tokens = std::min(tokens_left, config_.max_context_tokens);
    std::vector<int32_t> blocks(
        static_cast<size_t>((num_tokens + block_tokens_ - 1) / block_tokens_));
    std::iota(blocks.begin(), blocks.end(), next_block);
    next_block += static_cast<int32_t>(blocks.size());
    add_sequence(batch, slot, 0, static_cast<int>(num_tokens), std::move(blocks));
    tokens_left -= num_tokens;
  }
  return batch;
}

core::Batch StepExecutor::widest_decode() const {
  core::Batch batch;
  const int num_sequences = std::min(config_.max_slots, config_.max_batch_tokens);
  for (int32_t slot = 0; slot < num_sequences; ++slot) add_sequence(batch, slot, 0, 1, {slot});
  return batch;
}

core::Batch StepExecutor::longest_decode() const {
  core::Batch batch;
  const int64_t rows = config_.max_context_tokens;
  add_sequence(
      batch, 0, rows - 1, 1,
      std::vector<int32_t>(static_cast<size_t>((rows + block_tokens_ - 1) / block_tokens_)));
  return batch;
}

void StepExecutor::run_largest_step() {
  const core::Batch prefill = largest_prefill();
  size_t num_blocks = static_cast<size_t>(config_.max_slots);
  size_t prefill_blocks = 0;
  for (const core::BlockAppend& append : prefill.block_appends)
    prefill_blocks += append.block_ids.size();
  num_blocks = std::max(num_blocks, prefill_blocks);
  kv_ = model::KvStorage::allocate(model_.kv_groups().at(0), static_cast<int>(num_blocks),
                                   model_.backend());
  MaskMailbox no_masks;
  run(prefill, no_masks);
  run(widest_decode(), no_masks);
  run(longest_decode(), no_masks);
  model_.logits(row_hidden_, logits_, stream_);
  stream_.synchronize();
  kv_.reset();
}

}  // namespace fathom::runner
