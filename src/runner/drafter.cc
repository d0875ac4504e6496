#include "runner/drafter.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/trace.h"
#include "ops/draft.h"
#include "ops/gather_rows.h"
#include "ops/mla.h"
#include "ops/top_k.h"
#include "ops/verify.h"

namespace fathom::runner {
namespace {

using tensor::DType;
using tensor::Tensor;
using Staged = ops::StagedBuffer;

int64_t input_bytes(const DrafterConfig& config) {
  const int64_t tokens = config.max_batch_tokens;
  return 3 * Staged::array_bytes<int32_t>(config.max_slots) + Staged::array_bytes<int32_t>(tokens) +
         2 * Staged::array_bytes<int32_t>(2 * tokens);
}

int64_t result_bytes(const DrafterConfig& config) {
  const int64_t slots = config.max_slots, drafts = slots * config.shape.max_drafts();
  return 4 * Staged::array_bytes<int32_t>(slots) + 2 * Staged::array_bytes<int32_t>(drafts) +
         2 * Staged::array_bytes<int32_t>(config.max_batch_tokens);
}

template <class T>
void upload(const ops::Backend& backend, const Tensor& to, const std::vector<T>& values,
            ops::Stream& stream) {
  backend.copy_to_device(to.data(), values.data(), to.num_bytes(), stream);
  stream.synchronize();
}

Tensor first(const Tensor& tensor, int64_t count) { return tensor.slice(0, 0, count); }

}  // namespace

int64_t max_draft_tokens(const DrafterInfo& shape, int max_slots) {
  if (shape.num_steps < 2) return 0;
  return int64_t{max_slots} * ops::draft_width(shape.top_k, shape.num_steps - 1);
}

Drafter::Drafter(const model::Model& model, const DrafterConfig& config, const SlotTable& slots)
    : model_(model),
      config_(config),
      slots_(slots),
      block_tokens_(model.kv_groups().at(0).block_tokens),
      staged_(model.backend(), input_bytes(config), kNumFrames),
      results_(model.backend(), result_bytes(config), kNumFrames) {
  tensor::Arena measure;
  carve(measure);
  memory_ = ops::DeviceBuffer::allocate_for_step(
      model.backend(), measure.peak_bytes(),
      "the drafts of " + std::to_string(config.max_slots) + " running requests");
  tensor::Arena arena = memory_.arena();
  carve(arena);
  fill_constants();
}

int64_t Drafter::most_nodes() const {
  const int64_t k = config_.shape.top_k;
  return k + (config_.shape.num_steps - 1) * k * k;
}

int64_t Drafter::most_fed() const { return int64_t{config_.shape.top_k} * config_.shape.num_steps; }

void Drafter::carve(tensor::Arena& arena) {
  const int64_t slots = config_.max_slots, tokens = config_.max_batch_tokens;
  const int64_t top_k = config_.shape.top_k, max_drafts = config_.shape.max_drafts();
  const int64_t hidden_size = model_.config().hidden_size;
  const int64_t width = std::max<int64_t>(max_draft_tokens(config_.shape, 1), 1);
  const DType act = model_.backend().act;
  const auto i32 = [&](std::initializer_list<int64_t> shape) {
    return arena.allocate(DType::kI32, shape);
  };
  const auto i64 = [&](std::initializer_list<int64_t> shape) {
    return arena.allocate(DType::kI64, shape);
  };
  const auto f32 = [&](std::initializer_list<int64_t> shape) {
    return arena.allocate(DType::kF32, shape);
  };
  m_.drafts = i32({slots, max_drafts});
  m_.parents = i32({slots, max_drafts});
  m_.num_drafts = i32({slots});
  m_.max_rows = i32({slots});
  for (Tensor* each : {&m_.source, &m_.next_ids, &m_.draft_positions}) *each = i32({tokens});
  m_.draft_kv_rows = i64({tokens});
  m_.draft_row = i32({slots});
  m_.draft_row_kv = i64({slots});
  m_.root_hidden = arena.allocate(act, {slots, hidden_size});
  if (!is_chain()) {
    m_.moved_hidden = arena.allocate(act, {tokens, hidden_size});
    m_.node_hidden = arena.allocate(act, {slots * width, hidden_size});
    m_.ranked_hidden = arena.allocate(act, {slots * top_k, hidden_size});
    m_.tree_mask = arena.allocate(DType::kU64, {slots * width});
    m_.from = i32({slots * width});
    m_.logit_rows = i32({slots * top_k});
  }
  m_.node_token = i32({slots, most_nodes()});
  m_.node_parent = i32({slots, most_nodes()});
  m_.node_score = f32({slots, most_nodes()});
  m_.fed = i32({slots, most_fed()});
  m_.token_ids = i32({slots * width});
  m_.positions = i32({slots * width});
  m_.kv_rows = i64({slots * width});
  m_.kv_len = i32({slots});
  m_.tables = i32({slots, config_.max_blocks});
  m_.query_start.clear();
  for (int level = 1; level < config_.shape.num_steps; ++level)
    m_.query_start.push_back(i32({slots + 1}));
  m_.top_ids = i32({slots * top_k, top_k});
  m_.top_logprobs = f32({slots * top_k, top_k});
}

void Drafter::fill_constants() {
  const ops::Backend& backend = model_.backend();
  const std::unique_ptr<ops::Stream> stream = backend.make_stream({.num_threads = 1});
  const auto slots = static_cast<size_t>(config_.max_slots);
  const auto max_drafts = static_cast<size_t>(config_.shape.max_drafts());
  // Parents are followed before drafts were ever proposed, by rows that are inert.
  upload(backend, m_.parents, std::vector<int32_t>(slots * max_drafts, -1), *stream);
  upload(backend, m_.drafts, std::vector<int32_t>(slots * max_drafts), *stream);
  upload(backend, m_.num_drafts, std::vector<int32_t>(slots), *stream);
  for (size_t i = 0; i < m_.query_start.size(); ++i) {
    std::vector<int32_t> starts(slots + 1);
    for (size_t s = 0; s <= slots; ++s)
      starts[s] =
          static_cast<int32_t>(s) * ops::draft_width(config_.shape.top_k, static_cast<int>(i) + 1);
    upload(backend, m_.query_start[i], starts, *stream);
  }
}

void Drafter::admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes) const {
  writes.put(m_.max_rows, admission.slot, admission.max_rows);
  writes.put(m_.num_drafts, admission.slot, int32_t{0});
}

void Drafter::stage(const StepLayout& layout, int frame, ops::Stream& stream) {
  frame_ = frame;
  const int64_t slices = layout.num_slices(), tokens = layout.num_tokens();
  const auto rows = static_cast<int64_t>(layout.rows.size());
  staged_.use_host(frame);
  for (Array<int32_t>* each : {&inputs_.num_wanted, &inputs_.first_row, &inputs_.num_asked})
    *each = staged_.add<int32_t>({slices});
  inputs_.next_given = staged_.add<int32_t>({tokens});
  inputs_.row_slot = staged_.add<int32_t>({rows});
  inputs_.row_draft = staged_.add<int32_t>({rows});
  inputs_.num_wanted.assign(layout.num_wanted);
  inputs_.first_row.assign(layout.first_row);
  inputs_.num_asked.assign(layout.num_asked);
  inputs_.next_given.assign(layout.next_given);
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    inputs_.row_slot.host[i] = layout.rows[i].sample.slot;
    inputs_.row_draft.host[i] = layout.rows[i].draft;
  }
  staged_.upload(stream);

  results_.use_host(frame);
  Results& results = frames_[static_cast<size_t>(frame)];
  const int64_t max_drafts = config_.shape.max_drafts();
  for (Array<int32_t>* each :
       {&results.num_out, &results.num_verified, &results.first_position, &results.count})
    *each = results_.add<int32_t>({slices});
  for (Array<int32_t>* each : {&results.drafts, &results.parents})
    *each = results_.add<int32_t>({slices, max_drafts});
  for (Array<int32_t>* each : {&results.out_rows, &results.out_tokens})
    *each = results_.add<int32_t>({tokens});
}

ops::DraftSlots Drafter::draft_slots() const {
  return {.last_token = slots_.last_token(),
          .length = slots_.length(),
          .max_rows = m_.max_rows,
          .drafts = m_.drafts,
          .parents = m_.parents,
          .num_drafts = m_.num_drafts};
}

void Drafter::complete_inputs(const DraftStep& step, const sampling::Sampler& sampler,
                              ops::Stream& stream) const {
  ops::draft_inputs({.slots = draft_slots(),
                     .slice_slot = step.slice_slot,
                     .query_start = step.query_start,
                     .num_wanted = inputs_.num_wanted.device,
                     .token_ids = step.token_ids,
                     .positions = step.positions,
                     .kv_rows = step.kv_rows,
                     .tree_mask = step.tree_mask},
                    stream);
  if (step.layout.rows.empty()) return;
  const sampling::DeviceRows rows = sampler.device_rows();
  ops::draft_rows({.slots = draft_slots(),
                   .positions = step.positions,
                   .row_tokens = step.row_tokens,
                   .row_slot = inputs_.row_slot.device,
                   .row_draft = inputs_.row_draft.device,
                   .position = rows.position,
                   .paths = rows.paths},
                  stream);
}

void Drafter::accept(const DraftStep& step, const sampling::Sampler& sampler,
                     ops::Stream& stream) const {
  const Results& results = frames_[static_cast<size_t>(frame_)];
  const int64_t slices = step.layout.num_slices(), tokens = step.layout.num_tokens();
  ops::accept_drafts({.slots = draft_slots(),
                      .slice_slot = step.slice_slot,
                      .query_start = step.query_start,
                      .num_wanted = inputs_.num_wanted.device,
                      .first_row = inputs_.first_row.device,
                      .penalty_row = step.penalty_row,
                      .counts = sampler.counts(),
                      .sampled = sampler.tokens(),
                      .next_given = inputs_.next_given.device,
                      .kv_rows = step.kv_rows,
                      .agreement = config_.simulated_agreement.value_or(-1.0f),
                      .num_out = results.num_out.device,
                      .out_rows = results.out_rows.device,
                      .out_tokens = results.out_tokens.device,
                      .num_verified = results.num_verified.device,
                      .first_position = results.first_position.device,
                      .source = first(m_.source, tokens),
                      .next_ids = first(m_.next_ids, tokens),
                      .draft_positions = first(m_.draft_positions, tokens),
                      .draft_kv_rows = first(m_.draft_kv_rows, tokens),
                      .draft_row = first(m_.draft_row, slices),
                      .draft_row_kv = first(m_.draft_row_kv, slices)},
                     stream);
}

void Drafter::propose(const DraftStep& step, const Pass& pass, ops::Stream& stream) const {
  const trace::Span span("model", "draft");
  const int64_t slices = step.layout.num_slices(), tokens = step.layout.num_tokens();
  const Tensor source = first(m_.source, tokens), draft_kv_rows = first(m_.draft_kv_rows, tokens);
  Tensor hidden = pass.hidden;
  if (!is_chain()) {
    for (const Tensor& rows : pass.kv.layers(0, model_.config().num_hidden_layers))
      ops::move_rows({.rows = rows,
                      .query_start = step.query_start,
                      .source = source,
                      .from = step.kv_rows,
                      .to = draft_kv_rows},
                     stream);
    hidden = first(m_.moved_hidden, tokens);
    ops::gather_rows({.x = pass.hidden, .rows = source, .out = hidden}, stream);
  }
  model::ForwardBatch batch = pass.batch;
  batch.positions = first(m_.draft_positions, tokens);
  batch.kv_rows = draft_kv_rows;
  batch.tree_mask = {};  // what stays follows each other
  const Tensor next_ids = first(m_.next_ids, tokens);
  const int num_levels = step.layout.num_levels;
  if (num_levels == 0)
    return model_.mtp_append_rows(hidden, next_ids, batch, pass.kv, pass.workspace, stream);
  batch.kept = kept_tokens(step.layout);
  const Tensor root = model_.mtp_forward(hidden, next_ids, batch, pass.kv, pass.workspace, stream);
  rank(root, pass.logits, stream);
  Tensor drafted = root;
  for (int level = 1; level < num_levels; ++level) {
    grow(step, level, num_levels, pass.kv, stream);
    drafted = run_level(level, step.layout, drafted, pass, stream);
    Tensor newest = drafted;
    if (!is_chain()) {
      newest = first(m_.ranked_hidden, slices * config_.shape.top_k);
      ops::gather_rows({.x = drafted, .rows = first(m_.logit_rows, newest.dim(0)), .out = newest},
                       stream);
    }
    rank(newest, pass.logits, stream);
  }
  grow(step, num_levels, num_levels, pass.kv, stream);
}

// Of all that stays drafts go on from the last token of each slice alone.
model::KeptTokens Drafter::kept_tokens(const StepLayout& layout) const {
  const int64_t slices = layout.num_slices();
  return {.rows = first(m_.draft_row, slices),
          .kv_rows = first(m_.draft_row_kv, slices),
          .out = first(m_.root_hidden, slices),
          .lane_starts = lane_starts(layout.lane_slices)};
}

void Drafter::rank(const Tensor& rows, const Tensor& logits, ops::Stream& stream) const {
  for (int64_t begin = 0; begin < rows.dim(0); begin += config_.max_logit_rows) {
    const int64_t end = std::min(begin + config_.max_logit_rows, rows.dim(0)), n = end - begin;
    const Tensor out = first(logits, n);
    model_.draft_logits(rows.slice(0, begin, end), out, stream);
    ops::top_k({.logits = out,
                .ids = m_.top_ids.slice(0, begin, end),
                .logprobs = m_.top_logprobs.slice(0, begin, end)},
               stream);
  }
}

void Drafter::grow(const DraftStep& step, int level, int num_levels, const model::KvStorage& kv,
                   ops::Stream& stream) const {
  const Results& results = frames_[static_cast<size_t>(frame_)];
  const int64_t slices = step.layout.num_slices();
  const int top_k = config_.shape.top_k;
  const int64_t rows = slices * (level == 1 ? 1 : top_k);
  ops::GrowDraftsArgs args{.level = level,
                           .top_k = top_k,
                           .is_last = level == num_levels,
                           .slots = draft_slots(),
                           .block_tables = slots_.block_tables(),
                           .slice_slot = step.slice_slot,
                           .num_asked = inputs_.num_asked.device,
                           .top_ids = first(m_.top_ids, rows),
                           .top_logprobs = first(m_.top_logprobs, rows),
                           .node_token = first(m_.node_token, slices),
                           .node_parent = first(m_.node_parent, slices),
                           .node_score = first(m_.node_score, slices),
                           .fed = first(m_.fed, slices),
                           .out_drafts = results.drafts.device,
                           .out_parents = results.parents.device,
                           .out_count = results.count.device,
                           .block_tokens = block_tokens_,
                           .first_spare_block = kv.num_blocks()};
  if (!args.is_last) {
    const int64_t tokens = slices * ops::draft_width(top_k, level);
    args.token_ids = first(m_.token_ids, tokens);
    args.positions = first(m_.positions, tokens);
    args.kv_rows = first(m_.kv_rows, tokens);
    args.kv_len = first(m_.kv_len, slices);
    args.tables = first(m_.tables, slices);
    if (!is_chain()) {
      args.tree_mask = first(m_.tree_mask, tokens);
      args.source = first(m_.from, tokens);
      args.logit_rows = first(m_.logit_rows, slices * top_k);
    }
  }
  ops::grow_drafts(args, stream);
}

void Drafter::propose_none(const StepLayout& layout, const Pass& pass, ops::Stream& stream) const {
  // As in propose(): where nobody drafts, no lane meets another here.
  model::ForwardBatch batch = pass.batch;
  for (int level = 0; level < layout.num_levels; ++level) {
    batch.kept = level == 0 ? kept_tokens(layout) : model::KeptTokens();
    if (level > 0)
      batch.lane_starts =
          lane_starts(layout.lane_slices, ops::draft_width(config_.shape.top_k, level));
    model_.mtp_forward(pass.hidden, batch.token_ids, batch, pass.kv, pass.workspace, stream);
  }
}

Tensor Drafter::run_level(int level, const StepLayout& layout, const Tensor& before,
                          const Pass& pass, ops::Stream& stream) const {
  const int64_t slices = layout.num_slices();
  const int width = ops::draft_width(config_.shape.top_k, level);
  const int64_t tokens = slices * width;
  Tensor hidden = before;
  model::ForwardBatch batch;
  batch.lane_starts = lane_starts(layout.lane_slices, width);
  if (!is_chain()) {
    hidden = first(m_.node_hidden, tokens);
    ops::select_rows({.a = before,
                      .b = first(m_.root_hidden, slices),
                      .rows = first(m_.from, tokens),
                      .out = hidden},
                     stream);
    batch.tree_mask = first(m_.tree_mask, tokens);
  }
  batch.token_ids = first(m_.token_ids, tokens);
  batch.positions = first(m_.positions, tokens);
  batch.kv_rows = first(m_.kv_rows, tokens);
  batch.query_start = first(m_.query_start.at(static_cast<size_t>(level) - 1), slices + 1);
  batch.kv_len = first(m_.kv_len, slices);
  batch.block_tables = first(m_.tables, slices);
  batch.num_table_blocks = layout.table_blocks;
  batch.num_absorbed_sequences = slices;
  batch.num_absorbed_tokens = tokens;
  return model_.mtp_forward(hidden, batch.token_ids, batch, pass.kv, pass.workspace, stream);
}

DraftOutcome Drafter::outcome(int frame, const StepLayout& layout, size_t slice) const {
  const Results& results = frames_.at(static_cast<size_t>(frame));
  DraftOutcome outcome{.failed = results.num_out.host[slice] < 0,
                       .first_position = results.first_position.host[slice],
                       .num_verified = results.num_verified.host[slice]};
  const auto begin = static_cast<size_t>(layout.query_start[slice]);
  for (int32_t k = 0; k < results.num_out.host[slice]; ++k) {
    const size_t at = begin + static_cast<size_t>(k);
    outcome.tokens.push_back(
        {.row = results.out_rows.host[at], .token = results.out_tokens.host[at]});
  }
  return outcome;
}

std::vector<core::Draft> Drafter::drafts(int frame, size_t slice) const {
  const Results& results = frames_.at(static_cast<size_t>(frame));
  std::vector<core::Draft> drafts;
  const size_t begin = slice * static_cast<size_t>(config_.shape.max_drafts());
  for (int32_t i = 0; i < results.count.host[slice]; ++i) {
    const size_t at = begin + static_cast<size_t>(i);
    drafts.push_back({.token = results.drafts.host[at], .parent = results.parents.host[at]});
  }
  return drafts;
}

}  // namespace fathom::runner
