#include "runner/step_executor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "base/failpoint.h"
#include "base/token_mask.h"
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

// Rows of logits of a step of decodes, which is sampled at once, drafts included as far as that stays small.
int64_t most_logit_rows(const StepExecutorConfig& config) {
  constexpr int64_t kMostDraftRows = 512;
  const int64_t verified = int64_t{config.max_slots} * (1 + config.drafter.max_drafts());
  return std::max({kLogitRows, int64_t{config.max_slots}, std::min(verified, kMostDraftRows)});
}

// A query token can have a row for its successor in the prompt and one to choose.
int max_rows(const StepExecutorConfig& config) { return 2 * config.max_batch_tokens; }

}  // namespace

void StepExecutor::carve_logits(tensor::Arena& arena) {
  row_hidden_ =
      arena.allocate(model_.backend().act, {max_logit_rows_, int64_t{model_.config().hidden_size}});
  logits_ = arena.allocate(DType::kF32, {max_logit_rows_, int64_t{model_.config().vocab_size}});
}

StepExecutor::StepExecutor(const model::Model& model, const StepExecutorConfig& config,
                           ops::Stream& stream)
    : model_(model),
      failpoint_suffix_(model.rank().count() > 1 ? "." + std::to_string(model.rank().number())
                                                 : ""),
      config_(config),
      stream_(stream),
      block_tokens_(model.kv_groups().at(0).block_tokens),
      max_logit_rows_(std::min<int64_t>(most_logit_rows(config), max_rows(config))),
      workspace_(model.make_workspace(
          {.max_batch_tokens = std::max<int64_t>(
               config.max_batch_tokens,
               max_draft_tokens(config.drafter, config.max_slots * model.rank().dp->size())),
           .max_rows = int64_t{max_blocks()} * block_tokens_})),
      slots_({.max_slots = config.max_slots, .max_blocks = max_blocks()}, model.backend()),
      sampler_({.vocab_size = model.config().vocab_size,
                .max_slots = config.max_slots,
                .max_rows = max_rows(config),
                .max_sampled_rows = static_cast<int>(max_logit_rows_),
                .max_path = config.drafter.num_steps},
               model.backend()),
      writes_(model.backend(), kNumFrames),
      inputs_({.max_slots = config.max_slots,
               .max_batch_tokens = config.max_batch_tokens,
               .max_rows = max_rows(config),
               .max_blocks = max_blocks(),
               .block_tokens = block_tokens_,
               .num_frames = kNumFrames},
              model.backend()),
      captured_({.batch_sizes = config.graph_batch_sizes,
                 .drafter = config.drafter,
                 .num_lanes = model.rank().dp->size(),
                 .long_attention = model.backend().long_attention,
                 .max_blocks = max_blocks(),
                 .block_tokens = block_tokens_,
                 .max_logit_rows = max_logit_rows_,
                 .max_batch_tokens = config.max_batch_tokens,
                 .code_version = config.code_version}) {
  for (Frame& frame : frames_) frame.timer.emplace(stream);
  const ops::Backend& backend = model.backend();
  tensor::Arena measured;
  carve_logits(measured);
  logits_memory_ =
      ops::DeviceBuffer::allocate_for_step(backend, measured.peak_bytes(), "the logits of a step");
  tensor::Arena logits = logits_memory_.arena();
  carve_logits(logits);
  if (drafter().num_steps > 0)
    drafter_.emplace(model,
                     DrafterConfig{.shape = drafter(),
                                   .simulated_agreement = config.simulated_agreement,
                                   .max_slots = config.max_slots,
                                   .max_batch_tokens = config.max_batch_tokens,
                                   .max_blocks = max_blocks(),
                                   .max_logit_rows = max_logit_rows_},
                     slots_);
}

// Query tokens that are inert may reach beyond the context; the entries of the table there are never written to.
int StepExecutor::max_blocks() const {
  const int64_t beyond = drafter().num_steps == 0 ? 0 : 1 + drafter().max_drafts();
  return num_blocks_for(config_.max_context_tokens + beyond, block_tokens_);
}

StepMemory StepExecutor::memory() const {
  return {.workspace_bytes = workspace_.num_bytes(),
          .logits_bytes = logits_memory_.num_bytes(),
          .slots_bytes = slots_.num_bytes() + writes_.num_bytes() + inputs_.num_bytes(),
          .sampler_bytes = sampler_.num_bytes(),
          .scratch_bytes = stream_.scratch_bytes(),
          .drafter_bytes = drafter_ ? drafter_->num_bytes() : 0};
}

void StepExecutor::enqueue(const core::Batch& batch, MaskMailbox& masks, int frame_idx) {
  trace::Span span("runner", "enqueue");
  span.arg("step", batch.step_id);
  span.arg("slices", static_cast<int64_t>(batch.slices.size()));
  if (any_failpoint_armed() && failpoint("model_runner.stands_still" + failpoint_suffix_))
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  Frame& frame = frames_.at(static_cast<size_t>(frame_idx));
  frame.enqueued = Clock::now();
  frame.result = {.step_id = batch.step_id};
  frame.layout = {};
  frame.timer->reset();
  apply_deltas(batch, frame_idx);
  if (batch.slices.empty() && batch.shape.has_tokens()) {
    frame.layout = lay_out(batch);
    if (captured_.takes(frame.layout))
      compute(batch, frame.layout, masks, frame_idx);
    else
      compute_idle(frame.layout, *frame.timer);
  }
  if (!batch.slices.empty()) {
    frame.layout = lay_out(batch);
    const StepLayout& layout = frame.layout;
    FATHOM_CHECK(
        layout.num_tokens() <= config_.max_batch_tokens && layout.num_slices() <= config_.max_slots,
        layout.num_tokens() << " query tokens in " << layout.num_slices() << " slices, at most "
                            << config_.max_batch_tokens << " in " << config_.max_slots);
    check_penalties(batch);
    compute(batch, frame.layout, masks, frame_idx);
    for (const core::SequenceSlice& slice : batch.slices) {
      const bool goes_on = slice.tokens.empty();
      slots_.advance(slice.slot, goes_on ? 1 : slice.num_tokens, goes_on);
    }
  }
  release_slots(batch);
}

StepLayout StepExecutor::lay_out(const core::Batch& batch) const {
  StepLayout layout = lay_out_step(
      batch, slots_, block_tokens_,
      [this](int64_t num_tokens, int64_t kv_begin) {
        return model_.attention_form(num_tokens, kv_begin);
      },
      drafter());
  if (any_failpoint_armed() && failpoint("model_runner.lane_rows" + failpoint_suffix_))
    ++layout.lane_tokens.front();
  return layout;
}

void StepExecutor::compute_idle(const StepLayout& layout, StepTimer& timer) {
  timer.begin(true);
  const model::ForwardBatch batch = inputs_.idle_batch(layout);
  const Tensor hidden = model_.forward(batch, *kv_, workspace_, stream_);
  timer.forward_done();
  if (drafter_)
    drafter_->propose_none(
        layout,
        {.batch = batch, .hidden = hidden, .logits = logits_, .kv = *kv_, .workspace = workspace_},
        stream_);
  timer.end();
}

core::StepResult StepExecutor::collect(int frame_idx) {
  Frame& frame = frames_.at(static_cast<size_t>(frame_idx));
  const trace::Span span("runner", "collect");
  frame.timer->wait();
  core::StepResult result = collect_rows(frame, frame_idx);
  if (drafter_) collect_drafts(frame.layout, frame_idx, result);
  // Until the step before was done the device worked on that one.
  const Clock::time_point now = Clock::now();
  result.wall_seconds =
      std::chrono::duration<double>(now - std::max(frame.enqueued, last_done_)).count();
  last_done_ = now;
  frame.timer->tell(result);
  return result;
}

core::StepResult StepExecutor::collect_rows(Frame& frame, int frame_idx) {
  const StepLayout& layout = frame.layout;
  core::StepResult& result = frame.result;
  result.slices.resize(layout.order.size());
  for (size_t i = 0; i < layout.order.size(); ++i)
    result.slices[static_cast<size_t>(layout.order[i])].slot = layout.slice_slot[i];
  for (size_t i = 0; i < layout.rows.size(); ++i) {
    const OutputRow& row = layout.rows[i];
    // Padding, and rows of which the drafter knows whether they came out.
    if (row.slice_idx < 0 || row.sample.is_bound) continue;
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
  return std::move(result);
}

void StepExecutor::collect_drafts(const StepLayout& layout, int frame_idx,
                                  core::StepResult& result) {
  for (size_t i = 0; i < layout.order.size(); ++i) {
    core::SliceResult& slice = result.slices[static_cast<size_t>(layout.order[i])];
    if (layout.num_levels > 0) slice.drafts = drafter_->drafts(frame_idx, i);
    if (layout.num_wanted[i] == 0) continue;
    const DraftOutcome outcome = drafter_->outcome(frame_idx, layout, i);
    slice.num_verified_drafts = outcome.num_verified;
    // It has failed or is at its limit: nothing goes on from there.
    if (outcome.tokens.empty()) slice.drafts.clear();
    if (outcome.failed)
      slice.error = sampler_.result(frame_idx, layout.first_row[i], outcome.first_position + 1)
                        .error()
                        .message;
    for (const DraftOutcome::Token& token : outcome.tokens) {
      slice.tokens.push_back(*sampler_.result(frame_idx, token.row));
      slice.tokens.back().token = token.token;
    }
  }
}

void StepExecutor::release_slots(const core::Batch& batch) {
  for (int32_t slot : batch.releases) {
    slots_.release(slot);
    sampler_.release(slot);
  }
}

// The counts on the device do not hold tokens that are given with a slice, so rows after the first would be penalised
// wrongly.
void StepExecutor::check_penalties(const core::Batch& batch) const {
  for (const core::SequenceSlice& slice : batch.slices)
    FATHOM_CHECK(slice.outputs != core::Outputs::kAll || slice.num_tokens == 1 ||
                     slice.tokens.empty() || sampler_.penalty_row(slice.slot) < 0,
                 "slot " << slice.slot << " has penalties and samples " << slice.num_tokens
                         << " tokens in one slice, at most 1");
}

void StepExecutor::apply_deltas(const core::Batch& batch, int frame) {
  for (const core::SlotAdmission& admission : batch.admissions) {
    slots_.admit(admission, writes_);
    sampler_.admit(admission, writes_);
    if (drafter_) drafter_->admit(admission, writes_);
  }
  for (const core::BlockAppend& append : batch.block_appends) slots_.append_blocks(append, writes_);
  writes_.send(frame, stream_);
  sampler_.send_counts(frame, stream_);
}

void StepExecutor::compute(const core::Batch& batch, StepLayout& layout, MaskMailbox& masks,
                           int frame) {
  const CapturedSteps::Graphs* const graphs = captured_.pad(layout);
  stage_inputs(layout, frame);
  StepTimer& timer = *frames_.at(static_cast<size_t>(frame)).timer;
  const bool has_masks = wants_masks(batch);
  timer.begin(!stream_.runs_ahead() || has_masks || batch.step_id % config_.steps_per_timing == 0);
  Tensor hidden;
  if (graphs != nullptr) {
    const trace::Span span("model", "replay");
    graphs->forward->replay(stream_);
  } else {
    hidden = prepare_and_forward(layout);
  }
  timer.forward_done();
  const SharedMasks step_masks = take_masks(batch, layout, masks);
  if (has_masks) timer.masks_came();
  const trace::Span span("sampling", "sample");
  if (graphs != nullptr) {
    graphs->sample[sampler_.send_masks(stream_)]->replay(stream_);
  } else {
    sample_rows(layout, hidden);
    commit(layout, hidden);
  }
  sampler_.fetch(stream_);
  if (drafter_) drafter_->fetch(stream_);
  timer.end();
}

CapturedSteps::Parts StepExecutor::captured_parts() {
  return {.stage = [this](const StepLayout& layout) { stage_inputs(layout, 0); },
          .forward = [this](const StepLayout& layout) { return prepare_and_forward(layout); },
          .sample =
              [this](const StepLayout& layout, bool masked, const Tensor& hidden) {
                const int64_t rows = std::ssize(layout.rows);
                sampler_.sample_all(logits_.slice(0, 0, rows), masked, stream_);
                commit(layout, hidden);
              }};
}

void StepExecutor::capture_graphs() { captured_.capture(captured_parts(), stream_); }

bool StepExecutor::renew_graph() { return captured_.renew_one(captured_parts(), stream_); }

Tensor StepExecutor::prepare_and_forward(const StepLayout& layout) {
  inputs_.prepare(layout, slots_, stream_);
  if (drafter_) drafter_->complete_inputs(inputs_.draft_step(layout), sampler_, stream_);
  trace::Span span("model", "forward");
  span.arg("tokens", layout.num_tokens());
  const Tensor hidden = model_.forward(inputs_.forward_batch(layout), *kv_, workspace_, stream_);
  const auto num_rows = static_cast<int64_t>(layout.rows.size());
  if (num_rows > 0) compute_logits(0, std::min(max_logit_rows_, num_rows), hidden);
  return hidden;
}

SharedMasks StepExecutor::take_masks(const core::Batch& batch, const StepLayout& layout,
                                     MaskMailbox& masks) {
  if (!wants_masks(batch)) return nullptr;
  SharedMasks step_masks = [&] {
    const trace::Span span("sampling", "wait for masks");
    return masks.take(batch.step_id);
  }();
  if (!step_masks) return nullptr;
  const int vocab_size = model_.config().vocab_size;
  SliceMaskWords words = masks_of_slices(batch, *step_masks, vocab_size);
  const auto row_words = static_cast<size_t>(num_mask_words(vocab_size));
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

void StepExecutor::stage_inputs(const StepLayout& layout, int frame) {
  inputs_.stage(layout, sampler_, frame, stream_);
  std::vector<sampling::SampleRow> sample_rows;
  sample_rows.reserve(layout.rows.size());
  for (const OutputRow& row : layout.rows) sample_rows.push_back(row.sample);
  sampler_.begin_step(sample_rows, frame, stream_);
  if (drafter_) drafter_->stage(layout, frame, stream_);
}

Tensor StepExecutor::compute_logits(int64_t begin, int64_t end, const Tensor& hidden) {
  const Tensor row_hidden = row_hidden_.slice(0, 0, end - begin);
  const Tensor logits = logits_.slice(0, 0, end - begin);
  ops::gather_rows(
      {.x = hidden, .rows = inputs_.row_tokens().slice(0, begin, end), .out = row_hidden}, stream_);
  model_.logits(row_hidden, logits, stream_);
  return logits;
}

void StepExecutor::sample_rows(const StepLayout& layout, const Tensor& hidden) {
  const auto num_rows = static_cast<int64_t>(layout.rows.size());
  for (int64_t begin = 0; begin < num_rows; begin += max_logit_rows_) {
    const int64_t end = std::min(begin + max_logit_rows_, num_rows);
    const Tensor logits =
        begin == 0 ? logits_.slice(0, 0, end) : compute_logits(begin, end, hidden);
    if (begin == 0 && any_failpoint_armed()) plant_logits();
    sampler_.sample(begin, logits, stream_);
  }
}

void StepExecutor::plant_logits() {
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kLikeliest = 1e30f;
  for (const auto& [name, value] :
       {std::pair("model_runner.logits", &kNan), std::pair("model_runner.token", &kLikeliest)})
    if (failpoint(name + failpoint_suffix_))
      model_.backend().copy_to_device(logits_.data(), value, sizeof(float), stream_);
}

void StepExecutor::commit(const StepLayout& layout, const Tensor& hidden) {
  if (drafter_) {
    const DraftStep step = inputs_.draft_step(layout);
    drafter_->accept(step, sampler_, stream_);
    return drafter_->propose(step,
                             {.batch = inputs_.forward_batch(layout),
                              .hidden = hidden,
                              .logits = logits_,
                              .kv = *kv_,
                              .workspace = workspace_},
                             stream_);
  }
  ops::commit_tokens({.last_token = slots_.last_token(),
                      .length = slots_.length(),
                      .slice_slot = inputs_.slice_slot(),
                      .query_start = inputs_.query_start(),
                      .sampled = sampler_.tokens(),
                      .commit_row = inputs_.commit_row(),
                      .penalty_row = inputs_.penalty_row(),
                      .counts = sampler_.counts()},
                     stream_);
}

}  // namespace fathom::runner
