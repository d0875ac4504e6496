#include "runner/step_executor.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/startup_error.h"
#include "base/trace.h"
#include "ops/gather_rows.h"
#include "ops/step.h"

namespace fathom::runner {
namespace {

using tensor::DType;
using tensor::Tensor;

// Rows of logits computed at once: prompt log-probabilities of long chunks run in pieces of this, because
// a row of a large vocabulary takes half a megabyte.
constexpr int64_t kLogitRows = 64;

int num_blocks_for(int64_t tokens, int block_tokens) {
  return static_cast<int>((tokens + block_tokens - 1) / block_tokens);
}

// A query token can have a row for its successor in the prompt and one to choose.
int max_rows(const StepExecutorConfig& config) { return 2 * config.max_batch_tokens; }

int64_t input_bytes(const StepExecutorConfig& config) {
  using Staged = ops::StagedBuffer;
  return 4 * Staged::array_bytes<int32_t>(config.max_slots + 1) +
         2 * Staged::array_bytes<int32_t>(config.max_batch_tokens) +
         Staged::array_bytes<uint64_t>(config.max_batch_tokens) +
         Staged::array_bytes<int32_t>(max_rows(config));
}

ops::DeviceBuffer allocate_or_throw(const ops::Backend& backend, int64_t bytes, const char* what) {
  std::optional<ops::DeviceBuffer> memory = ops::DeviceBuffer::allocate(backend, bytes);
  if (!memory)
    throw StartupError(std::string(what) + " need " + std::to_string(bytes) + " bytes, " +
                       std::string(backend.device) + " has " +
                       std::to_string(backend.free_memory_bytes()) +
                       " free: lower the number of running requests or the tokens of a step");
  return std::move(*memory);
}

template <class T>
void fill(const ops::StagedBuffer::Array<T>& array, const std::vector<T>& values) {
  std::copy(values.begin(), values.end(), array.host.begin());
}

}  // namespace

void StepExecutor::carve_inputs(tensor::Arena& arena) {
  const int64_t tokens = config_.max_batch_tokens, slices = config_.max_slots;
  device_inputs_ = {.token_ids = arena.allocate(DType::kI32, {tokens}),
                    .positions = arena.allocate(DType::kI32, {tokens}),
                    .kv_slots = arena.allocate(DType::kI64, {tokens}),
                    .kv_len = arena.allocate(DType::kI32, {slices}),
                    .tables = arena.allocate(DType::kI32, {slices, slots_.block_tables().dim(1)})};
}

void StepExecutor::carve_logits(tensor::Arena& arena) {
  row_hidden_ =
      arena.allocate(model_.backend().act, {max_logit_rows_, int64_t{model_.config().hidden_size}});
  logits_ = arena.allocate(DType::kF32, {max_logit_rows_, int64_t{model_.config().vocab_size}});
}

StepExecutor::StepExecutor(const model::Model& model, const StepExecutorConfig& config,
                           ops::Stream& stream)
    : model_(model),
      config_(config),
      stream_(stream),
      block_tokens_(model.kv_groups().at(0).block_tokens),
      max_logit_rows_(
          std::min<int64_t>(std::max<int64_t>(kLogitRows, config.max_slots), max_rows(config))),
      workspace_(model.make_workspace({.max_batch_tokens = config.max_batch_tokens})),
      slots_({.max_slots = config.max_slots,
              .max_blocks = num_blocks_for(config.max_context_tokens, block_tokens_)},
             model.backend()),
      sampler_({.vocab_size = model.config().vocab_size,
                .max_slots = config.max_slots,
                .max_rows = max_rows(config),
                .max_sampled_rows = static_cast<int>(max_logit_rows_)},
               model.backend()),
      input_memory_(model.backend(), input_bytes(config), kNumFrames) {
  const ops::Backend& backend = model.backend();
  tensor::Arena measure_inputs, measure_logits;
  carve_inputs(measure_inputs);
  carve_logits(measure_logits);
  device_input_memory_ =
      allocate_or_throw(backend, measure_inputs.peak_bytes(), "the inputs of a step");
  logits_memory_ = allocate_or_throw(backend, measure_logits.peak_bytes(), "the logits of a step");
  tensor::Arena inputs = device_input_memory_.arena(), logits = logits_memory_.arena();
  carve_inputs(inputs);
  carve_logits(logits);
}

StepMemory StepExecutor::memory() const {
  return {.workspace_bytes = workspace_.num_bytes(),
          .logits_bytes = logits_memory_.num_bytes(),
          .slots_bytes =
              slots_.num_bytes() + device_input_memory_.num_bytes() + input_memory_.num_bytes(),
          .sampler_bytes = sampler_.num_bytes(),
          .scratch_bytes = stream_.scratch_bytes()};
}

void StepExecutor::enqueue(const core::Batch& batch, MaskMailbox& masks, int frame_idx) {
  trace::Span span("runner", "enqueue");
  span.arg("step", batch.step_id);
  span.arg("slices", static_cast<int64_t>(batch.slices.size()));
  Frame& frame = frames_.at(static_cast<size_t>(frame_idx));
  frame.enqueued = Clock::now();
  frame.result = {.step_id = batch.step_id};
  frame.layout = {};
  frame.done = nullptr;
  apply_deltas(batch);
  if (!batch.slices.empty()) {
    frame.layout =
        lay_out_step(batch, slots_, block_tokens_, [this](int64_t num_tokens, int64_t kv_begin) {
          return model_.attention_form(num_tokens, kv_begin);
        });
    const StepLayout& layout = frame.layout;
    FATHOM_CHECK(
        layout.num_tokens() <= config_.max_batch_tokens && layout.num_slices() <= config_.max_slots,
        layout.num_tokens() << " query tokens in " << layout.num_slices() << " slices, at most "
                            << config_.max_batch_tokens << " in " << config_.max_slots);
    check_penalties(batch);
    compute(batch, frame.layout, masks, frame_idx);
    frame.done = stream_.record();
    for (const core::SequenceSlice& slice : batch.slices)
      slots_.advance(slice.slot, slice.num_tokens);
  }
  release_slots(batch);
}

core::StepResult StepExecutor::collect(int frame_idx) {
  Frame& frame = frames_.at(static_cast<size_t>(frame_idx));
  const trace::Span span("runner", "collect");
  if (frame.done) frame.done->wait();
  const StepLayout& layout = frame.layout;
  core::StepResult& result = frame.result;
  result.slices.resize(layout.order.size());
  for (size_t i = 0; i < layout.order.size(); ++i)
    result.slices[static_cast<size_t>(layout.order[i])].slot = layout.slice_slot[i];
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    const OutputRow& row = layout.rows[i];
    if (row.slice_idx < 0) continue;  // padding
    core::SliceResult& slice = result.slices[static_cast<size_t>(row.slice_idx)];
    if (!slice.error.empty()) continue;
    Result<core::SampledToken> token = sampler_.result(frame_idx, static_cast<int64_t>(i));
    if (!token) {
      slice.error = token.error().message;
      slice.tokens.clear();
      slice.prompt_logprobs.clear();
    } else if (row.sample.forced >= 0) {
      slice.prompt_logprobs.push_back(std::move(*token));
    } else {
      slice.tokens.push_back(std::move(*token));
    }
  }
  // Until the step before was done the device worked on that one.
  const Clock::time_point now = Clock::now();
  result.seconds =
      std::chrono::duration<double>(now - std::max(frame.enqueued, last_done_)).count();
  last_done_ = now;
  return std::move(result);
}

void StepExecutor::release_slots(const core::Batch& batch) {
  for (int32_t slot : batch.releases) {
    slots_.release(slot);
    sampler_.release(slot);
  }
}

// The counts on the device do not hold the tokens that a slice verifies, so rows after the first would be
// penalised wrongly.
void StepExecutor::check_penalties(const core::Batch& batch) const {
  for (const core::SequenceSlice& slice : batch.slices)
    FATHOM_CHECK(slice.outputs != core::Outputs::kAll || slice.num_tokens == 1 ||
                     sampler_.penalty_row(slice.slot) < 0,
                 "slot " << slice.slot << " has penalties and samples " << slice.num_tokens
                         << " tokens in one slice, at most 1");
}

void StepExecutor::apply_deltas(const core::Batch& batch) {
  for (const core::SlotAdmission& admission : batch.admissions) {
    slots_.admit(admission, stream_);
    sampler_.admit(admission, stream_);
  }
  for (const core::BlockAppend& append : batch.block_appends) slots_.append_blocks(append, stream_);
}

void StepExecutor::compute(const core::Batch& batch, StepLayout& layout, MaskMailbox& masks,
                           int frame) {
  const int graph_size = graph_batch_size(layout);
  if (graph_size > 0) pad_decode(layout, graph_size);
  stage_inputs(layout, {.frame = frame, .fixed_biases = graph_size > 0 ? kGraphBiases : 0});
  DecodeGraphs* graphs = graph_size > 0 ? &decode_graphs(graph_size) : nullptr;
  Tensor hidden;
  if (graphs != nullptr) {
    const trace::Span span("model", "replay");
    graphs->forward->replay(stream_);
  } else {
    hidden = forward(layout);
  }
  const std::optional<core::StepMasks> step_masks = take_masks(batch, layout, masks);
  const trace::Span span("sampling", "sample");
  if (graphs != nullptr) {
    sampling_graph(layout, sampler_.send_masks(stream_), *graphs).replay(stream_);
  } else {
    sample_rows(layout, hidden);
    commit();
  }
  sampler_.fetch(stream_);
}

Tensor StepExecutor::forward(const StepLayout& layout) {
  const model::ForwardBatch batch = prepare_forward(layout);
  trace::Span span("model", "forward");
  span.arg("tokens", layout.num_tokens());
  return model_.forward(batch, *kv_, workspace_, stream_);
}

std::optional<core::StepMasks> StepExecutor::take_masks(const core::Batch& batch,
                                                        const StepLayout& layout,
                                                        MaskMailbox& masks) {
  if (!wants_masks(batch)) return std::nullopt;
  std::optional<core::StepMasks> step_masks = [&] {
    const trace::Span span("sampling", "wait for masks");
    return masks.take(batch.step_id);
  }();
  if (!step_masks) return std::nullopt;
  const int vocab_size = model_.config().vocab_size;
  SliceMaskWords words = masks_of_slices(batch, *step_masks, vocab_size);
  const size_t row_words = (static_cast<size_t>(vocab_size) + 63) / 64;
  // The rows of a slice come in the order of its query tokens, some of them for the prompt's
  // log-probabilities, which no mask limits.
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    const OutputRow& row = layout.rows[i];
    if (row.slice_idx < 0) continue;  // padding
    std::span<const uint64_t>& rest = words[static_cast<size_t>(row.slice_idx)];
    if (row.sample.forced >= 0 || rest.empty()) continue;
    sampler_.set_mask(static_cast<int64_t>(i), rest.first(row_words));
    rest = rest.subspan(row_words);
  }
  return step_masks;
}

void StepExecutor::stage_inputs(const StepLayout& layout, const sampling::StepShape& shape) {
  const int64_t slices = layout.num_slices(), tokens = layout.num_tokens();
  const int64_t rows = static_cast<int64_t>(layout.rows.size());
  input_memory_.use_host(shape.frame);
  inputs_.slice_slot = input_memory_.add<int32_t>({slices});
  inputs_.query_start = input_memory_.add<int32_t>({slices + 1});
  inputs_.commit_row = input_memory_.add<int32_t>({slices});
  inputs_.penalty_row = input_memory_.add<int32_t>({slices});
  inputs_.given_token = input_memory_.add<int32_t>({tokens});
  inputs_.relative = input_memory_.add<int32_t>({tokens});
  inputs_.tree_mask = input_memory_.add<uint64_t>({layout.tree_mask.empty() ? 0 : tokens});
  inputs_.row_tokens = input_memory_.add<int32_t>({rows});
  fill(inputs_.slice_slot, layout.slice_slot);
  fill(inputs_.query_start, layout.query_start);
  fill(inputs_.commit_row, layout.commit_row);
  fill(inputs_.given_token, layout.given_token);
  fill(inputs_.relative, layout.relative);
  fill(inputs_.tree_mask, layout.tree_mask);
  for (size_t i = 0; i < layout.slice_slot.size(); ++i) {
    const int32_t slot = layout.slice_slot[i];
    inputs_.penalty_row.host[i] = slot < 0 ? -1 : sampler_.penalty_row(slot);
  }
  std::vector<sampling::SampleRow> sample_rows;
  sample_rows.reserve(layout.rows.size());
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    inputs_.row_tokens.host[i] = layout.rows[i].token_idx;
    sample_rows.push_back(layout.rows[i].sample);
  }
  input_memory_.upload(stream_);
  sampler_.begin_step(sample_rows, shape, stream_);
}

model::ForwardBatch StepExecutor::prepare_forward(const StepLayout& layout) {
  const int64_t slices = layout.num_slices(), tokens = layout.num_tokens();
  const DeviceInputs inputs = {.token_ids = device_inputs_.token_ids.slice(0, 0, tokens),
                               .positions = device_inputs_.positions.slice(0, 0, tokens),
                               .kv_slots = device_inputs_.kv_slots.slice(0, 0, tokens),
                               .kv_len = device_inputs_.kv_len.slice(0, 0, slices),
                               .tables = device_inputs_.tables.slice(0, 0, slices)};
  ops::step_inputs({.last_token = slots_.last_token(),
                    .length = slots_.length(),
                    .block_tables = slots_.block_tables(),
                    .slice_slot = inputs_.slice_slot.device,
                    .query_start = inputs_.query_start.device,
                    .given_token = inputs_.given_token.device,
                    .relative = inputs_.relative.device,
                    .block_tokens = block_tokens_,
                    .token_ids = inputs.token_ids,
                    .positions = inputs.positions,
                    .kv_slots = inputs.kv_slots,
                    .kv_len = inputs.kv_len,
                    .tables = inputs.tables},
                   stream_);
  model::ForwardBatch batch;
  batch.token_ids = inputs.token_ids;
  batch.positions = inputs.positions;
  batch.kv_slots = inputs.kv_slots;
  if (!layout.tree_mask.empty()) batch.tree_mask = inputs_.tree_mask.device;
  batch.query_start = inputs_.query_start.device;
  batch.kv_len = inputs.kv_len;
  batch.block_tables = inputs.tables;
  batch.num_absorbed_sequences = layout.num_absorbed_sequences;
  batch.num_absorbed_tokens = layout.num_absorbed_tokens;
  batch.expanded = layout.expanded;
  return batch;
}

Tensor StepExecutor::compute_logits(int64_t begin, int64_t end, const Tensor& hidden) {
  const Tensor row_hidden = row_hidden_.slice(0, 0, end - begin);
  const Tensor logits = logits_.slice(0, 0, end - begin);
  ops::gather_rows(
      {.x = hidden, .rows = inputs_.row_tokens.device.slice(0, begin, end), .out = row_hidden},
      stream_);
  model_.logits(row_hidden, logits, stream_);
  return logits;
}

void StepExecutor::sample_rows(const StepLayout& layout, const Tensor& hidden) {
  const auto num_rows = static_cast<int64_t>(layout.rows.size());
  for (int64_t begin = 0; begin < num_rows; begin += max_logit_rows_) {
    const Tensor logits =
        compute_logits(begin, std::min(begin + max_logit_rows_, num_rows), hidden);
    if (begin == 0 && failpoint("model_runner.logits")) {
      static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
      model_.backend().copy_to_device(logits.data(), &kNan, sizeof(kNan), stream_);
    }
    sampler_.sample(begin, logits, stream_);
  }
}

void StepExecutor::commit() {
  ops::commit_tokens({.last_token = slots_.last_token(),
                      .length = slots_.length(),
                      .slice_slot = inputs_.slice_slot.device,
                      .query_start = inputs_.query_start.device,
                      .sampled = sampler_.tokens(),
                      .commit_row = inputs_.commit_row.device,
                      .penalty_row = inputs_.penalty_row.device,
                      .counts = sampler_.counts()},
                     stream_);
}

}  // namespace fathom::runner
