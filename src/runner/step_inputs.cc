#include "runner/step_inputs.h"

#include "ops/step.h"

namespace fathom::runner {
namespace {

using tensor::DType;
using tensor::Tensor;

int64_t sent_bytes(const StepInputsConfig& config) {
  using Staged = ops::StagedBuffer;
  return 4 * Staged::array_bytes<int32_t>(config.max_slots + 1) +
         2 * Staged::array_bytes<int32_t>(config.max_batch_tokens) +
         Staged::array_bytes<uint64_t>(config.max_batch_tokens) +
         Staged::array_bytes<int32_t>(config.max_rows);
}

}  // namespace

StepInputs::StepInputs(const StepInputsConfig& config, const ops::Backend& backend)
    : config_(config), sent_memory_(backend, sent_bytes(config), config.num_frames) {
  tensor::Arena measured;
  carve(measured);
  made_memory_ =
      ops::DeviceBuffer::allocate_for_step(backend, measured.peak_bytes(), "the inputs of a step");
  tensor::Arena arena = made_memory_.arena();
  carve(arena);
}

void StepInputs::carve(tensor::Arena& arena) {
  const int64_t tokens = config_.max_batch_tokens, slices = config_.max_slots;
  made_ = {.token_ids = arena.allocate(DType::kI32, {tokens}),
           .positions = arena.allocate(DType::kI32, {tokens}),
           .kv_rows = arena.allocate(DType::kI64, {tokens}),
           .kv_len = arena.allocate(DType::kI32, {slices}),
           .tables = arena.allocate(DType::kI32, {slices, config_.max_blocks})};
}

void StepInputs::stage(const StepLayout& layout, const sampling::Sampler& sampler, int frame,
                       ops::Stream& stream) {
  const int64_t slices = layout.num_slices(), tokens = layout.num_tokens();
  sent_memory_.use_host(frame);
  sent_.slice_slot = sent_memory_.add<int32_t>({slices});
  sent_.query_start = sent_memory_.add<int32_t>({slices + 1});
  sent_.commit_row = sent_memory_.add<int32_t>({slices});
  sent_.penalty_row = sent_memory_.add<int32_t>({slices});
  sent_.given_token = sent_memory_.add<int32_t>({tokens});
  sent_.relative = sent_memory_.add<int32_t>({tokens});
  sent_.tree_mask = sent_memory_.add<uint64_t>({layout.tree_mask.empty() ? 0 : tokens});
  sent_.row_tokens = sent_memory_.add<int32_t>({std::ssize(layout.rows)});
  sent_.slice_slot.assign(layout.slice_slot);
  sent_.query_start.assign(layout.query_start);
  sent_.commit_row.assign(layout.commit_row);
  sent_.given_token.assign(layout.given_token);
  sent_.relative.assign(layout.relative);
  sent_.tree_mask.assign(layout.tree_mask);
  for (size_t i = 0; i < layout.slice_slot.size(); ++i) {
    const int32_t slot = layout.slice_slot[i];
    sent_.penalty_row.host[i] = slot < 0 ? -1 : sampler.penalty_row(slot);
  }
  for (size_t i = 0; i < layout.rows.size(); ++i)
    sent_.row_tokens.host[i] = layout.rows[i].token_idx;
  sent_memory_.upload(stream);
}

StepInputs::Made StepInputs::made(const StepLayout& layout) const {
  const int64_t slices = layout.num_slices(), tokens = layout.num_tokens();
  return {.token_ids = made_.token_ids.slice(0, 0, tokens),
          .positions = made_.positions.slice(0, 0, tokens),
          .kv_rows = made_.kv_rows.slice(0, 0, tokens),
          .kv_len = made_.kv_len.slice(0, 0, slices),
          .tables = made_.tables.slice(0, 0, slices)};
}

void StepInputs::prepare(const StepLayout& layout, const SlotTable& slots, ops::Stream& stream) {
  const Made out = made(layout);
  ops::step_inputs({.last_token = slots.last_token(),
                    .length = slots.length(),
                    .block_tables = slots.block_tables(),
                    .slice_slot = sent_.slice_slot.device,
                    .query_start = sent_.query_start.device,
                    .given_token = sent_.given_token.device,
                    .relative = sent_.relative.device,
                    .block_tokens = config_.block_tokens,
                    .token_ids = out.token_ids,
                    .positions = out.positions,
                    .kv_rows = out.kv_rows,
                    .kv_len = out.kv_len,
                    .tables = out.tables},
                   stream);
}

model::ForwardBatch StepInputs::forward_batch(const StepLayout& layout) const {
  const Made in = made(layout);
  model::ForwardBatch batch;
  batch.token_ids = in.token_ids;
  batch.positions = in.positions;
  batch.kv_rows = in.kv_rows;
  if (!layout.tree_mask.empty()) batch.tree_mask = sent_.tree_mask.device;
  batch.lane_starts = lane_starts(layout.lane_tokens);
  batch.query_start = sent_.query_start.device;
  batch.kv_len = in.kv_len;
  batch.block_tables = in.tables;
  batch.num_table_blocks = layout.table_blocks;
  batch.num_absorbed_sequences = layout.num_absorbed_sequences;
  batch.num_absorbed_tokens = layout.num_absorbed_tokens;
  batch.expanded = layout.expanded;
  return batch;
}

model::ForwardBatch StepInputs::idle_batch(const StepLayout& layout) const {
  model::ForwardBatch batch;
  batch.token_ids = made_.token_ids.slice(0, 0, 0);
  batch.block_tables = made_.tables.slice(0, 0, 0);
  batch.lane_starts = lane_starts(layout.lane_tokens);
  return batch;
}

DraftStep StepInputs::draft_step(const StepLayout& layout) const {
  const Made in = made(layout);
  return {.layout = layout,
          .slice_slot = sent_.slice_slot.device,
          .query_start = sent_.query_start.device,
          .row_tokens = sent_.row_tokens.device,
          .penalty_row = sent_.penalty_row.device,
          .token_ids = in.token_ids,
          .positions = in.positions,
          .kv_rows = in.kv_rows,
          .kv_len = in.kv_len,
          .tables = in.tables,
          .tree_mask = layout.tree_mask.empty() ? Tensor() : sent_.tree_mask.device};
}

}  // namespace fathom::runner
