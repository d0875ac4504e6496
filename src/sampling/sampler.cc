#include "sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/token_mask.h"
#include "core/request.h"
#include "ops/step.h"

namespace fathom::sampling {
namespace {

using tensor::DType;
using tensor::Tensor;

bool has_penalties(const core::SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

int64_t row_bytes(int64_t rows) { return 3 * ops::StagedBuffer::array_bytes<int32_t>(rows); }

// Each part may end with a gap.
int64_t prompt_bytes(const SamplerConfig& config) {
  using Staged = ops::StagedBuffer;
  return Staged::array_bytes<int32_t>(Sampler::kTokensAtOnce) +
         (config.max_slots + 1) * Staged::array_bytes<int32_t>(0);
}

int64_t mask_bytes(const SamplerConfig& config) {
  return ops::StagedBuffer::array_bytes<uint64_t>(config.max_sampled_rows *
                                                  num_mask_words(config.vocab_size));
}

int64_t result_bytes(int64_t rows, int64_t max_top) {
  using Staged = ops::StagedBuffer;
  return 2 * Staged::array_bytes<int32_t>(rows) + 2 * Staged::array_bytes<int32_t>(rows * max_top) +
         Staged::array_bytes<uint8_t>(rows);
}

}  // namespace

Sampler::Sampler(const SamplerConfig& config, const ops::Backend& backend)
    : config_(config),
      slots_(static_cast<size_t>(config.max_slots)),
      row_memory_(backend, row_bytes(config.max_rows), kNumFrames),
      prompt_memory_(backend, prompt_bytes(config), kNumFrames),
      result_memory_(backend, result_bytes(config.max_rows, config.max_top_logprobs), kNumFrames),
      mask_memory_(backend, mask_bytes(config), kNumFrames) {
  const auto allocate = [&](int64_t bytes, const std::string& what) {
    return ops::DeviceBuffer::allocate_for_step(backend, bytes, what);
  };
  const std::string requests = std::to_string(config.max_slots) + " running requests";
  counts_memory_ = allocate(
      int64_t{config.max_slots} * config.vocab_size * static_cast<int64_t>(sizeof(int32_t)),
      "the penalty counts of " + requests);
  path_memory_ =
      allocate(int64_t{config.max_rows} * config.max_path * static_cast<int64_t>(sizeof(int32_t)),
               "the drafts of a step");
  tensor::Arena measure;
  carve_slots(measure);
  slot_memory_ = allocate(measure.peak_bytes(), "the sampling parameters of " + requests);
  tensor::Arena arena = slot_memory_.arena();
  carve_slots(arena);
  for (int32_t row = config.max_slots - 1; row >= 0; --row) free_penalty_rows_.push_back(row);
  lay_out(1);
}

void Sampler::carve_slots(tensor::Arena& arena) {
  const int64_t slots = config_.max_slots;
  for (Tensor* array : {&on_device_.temperature, &on_device_.top_p, &on_device_.min_p,
                        &on_device_.repetition, &on_device_.frequency, &on_device_.presence})
    *array = arena.allocate(DType::kF32, {slots});
  for (Tensor* array :
       {&on_device_.top_k, &on_device_.num_top, &on_device_.penalty_row, &on_device_.bias_start,
        &on_device_.ban_start, &on_device_.ban_end, &on_device_.ban_until})
    *array = arena.allocate(DType::kI32, {slots});
  on_device_.seed = arena.allocate(DType::kU64, {slots});
  on_device_.bias_ids = arena.allocate(DType::kI32, {slots * config_.max_biases});
  on_device_.bias_values = arena.allocate(DType::kF32, {slots * config_.max_biases});
  on_device_.counts = counts();
}

int64_t Sampler::num_bytes() const {
  return slot_memory_.num_bytes() + counts_memory_.num_bytes() + row_memory_.num_bytes() +
         prompt_memory_.num_bytes() + result_memory_.num_bytes() + mask_memory_.num_bytes() +
         path_memory_.num_bytes();
}

Tensor Sampler::counts() const {
  return Tensor::contiguous(counts_memory_.data(), DType::kI32,
                            {config_.max_slots, config_.vocab_size});
}

void Sampler::admit(const core::SlotAdmission& admission, ops::DeviceWrites& writes) {
  const core::SamplingParams& params = admission.sampling;
  FATHOM_CHECK(params.num_top_logprobs <= config_.max_top_logprobs,
               "num_top_logprobs is " << params.num_top_logprobs);
  Slot& slot = slots_[static_cast<size_t>(admission.slot)];
  slot = {.num_top = params.num_top_logprobs};
  if (has_penalties(params)) {
    slot.penalty_row = free_penalty_rows_.back();
    free_penalty_rows_.pop_back();
    note_counts(admission, slot.penalty_row);
  }
  const auto put = [&](const Tensor& array, auto value) {
    writes.put(array, admission.slot, value);
  };
  put(on_device_.temperature, params.temperature);
  put(on_device_.top_k, int32_t{params.top_k});
  put(on_device_.top_p, params.top_p);
  put(on_device_.min_p, params.min_p);
  put(on_device_.repetition, params.repetition_penalty);
  put(on_device_.frequency, params.frequency_penalty);
  put(on_device_.presence, params.presence_penalty);
  put(on_device_.seed, admission.seed);
  put(on_device_.num_top, int32_t{params.num_top_logprobs});
  put(on_device_.penalty_row, slot.penalty_row);
  put_biases(admission, writes);
}

void Sampler::put_biases(const core::SlotAdmission& admission, ops::DeviceWrites& writes) const {
  const core::SamplingParams& params = admission.sampling;
  const bool has_bans = params.min_new_tokens > 0;
  const size_t count = params.logit_bias.size() + (has_bans ? admission.stop_token_ids.size() : 0);
  FATHOM_CHECK(count <= static_cast<size_t>(config_.max_biases),
               "slot " << admission.slot << " has " << count << " biases and stop tokens, room for "
                       << config_.max_biases);
  const int32_t begin = admission.slot * config_.max_biases;
  int32_t at = begin;
  const auto add = [&](int32_t token, float bias) {
    writes.put(on_device_.bias_ids, at, token);
    writes.put(on_device_.bias_values, at++, bias);
  };
  for (const auto& [token, bias] : params.logit_bias) add(token, bias);
  writes.put(on_device_.bias_start, admission.slot, begin);
  writes.put(on_device_.ban_start, admission.slot, at);
  if (has_bans)
    for (const int32_t token : admission.stop_token_ids)
      add(token, -std::numeric_limits<float>::infinity());
  writes.put(on_device_.ban_end, admission.slot, at);
  const auto num_prompt =
      static_cast<int32_t>(admission.prompt.size()) - admission.num_generated_tokens;
  writes.put(on_device_.ban_until, admission.slot, num_prompt + params.min_new_tokens);
}

void Sampler::note_counts(const core::SlotAdmission& admission, int32_t penalty_row) {
  std::span<const int32_t> rest = admission.prompt;
  int64_t num_prompt = std::ssize(rest) - admission.num_generated_tokens;
  for (bool begins = true; begins || !rest.empty(); begins = false) {
    const auto size = std::min(rest.size(), static_cast<size_t>(kTokensAtOnce));
    counting_.push_back({.penalty_row = penalty_row,
                         .tokens = rest.first(size),
                         .num_prompt = std::min(num_prompt, static_cast<int64_t>(size)),
                         .begins = begins});
    num_prompt -= counting_.back().num_prompt;
    rest = rest.subspan(size);
  }
}

void Sampler::send_counts(int frame, ops::Stream& stream) {
  std::span<const Counting> rest = counting_;
  while (!rest.empty()) {
    if (rest.size() < counting_.size()) stream.synchronize();  // the copies before may be under way
    rest = rest.subspan(count_some(rest, frame, stream));
  }
  counting_.clear();
}

size_t Sampler::count_some(std::span<const Counting> parts, int frame, ops::Stream& stream) {
  prompt_memory_.use_host(frame);
  std::vector<Tensor> tokens;
  int64_t room = kTokensAtOnce;
  for (const Counting& part : parts) {
    room -= std::ssize(part.tokens);
    if (room < 0 || tokens.size() > slots_.size()) break;
    const Array<int32_t> staged = prompt_memory_.add<int32_t>({std::ssize(part.tokens)});
    staged.assign(part.tokens);
    tokens.push_back(staged.device);
  }
  prompt_memory_.upload(stream);
  for (size_t i = 0; i < tokens.size(); ++i)
    ops::count_tokens({.counts = counts()[parts[i].penalty_row],
                       .tokens = tokens[i],
                       .num_prompt = parts[i].num_prompt,
                       .begins = parts[i].begins},
                      stream);
  return tokens.size();
}

void Sampler::release(int32_t slot) {
  int32_t& penalty_row = slots_[static_cast<size_t>(slot)].penalty_row;
  if (penalty_row >= 0) free_penalty_rows_.push_back(penalty_row);
  penalty_row = -1;
}

void Sampler::lay_out(int64_t rows) {
  row_memory_.clear();
  for (Array<int32_t>* array : {&rows_.slot, &rows_.position, &rows_.forced})
    *array = row_memory_.add<int32_t>({rows});

  const int64_t max_top = config_.max_top_logprobs;
  result_memory_.clear();
  Results& results = frames_[static_cast<size_t>(frame_)].results;
  results.tokens = result_memory_.add<int32_t>({rows});
  results.logprobs = result_memory_.add<float>({rows});
  results.top_ids = result_memory_.add<int32_t>({rows, max_top});
  results.top_logprobs = result_memory_.add<float>({rows, max_top});
  results.failed = result_memory_.add<uint8_t>({rows});
}

void Sampler::begin_step(std::span<const SampleRow> rows, int frame, ops::Stream& stream) {
  FATHOM_CHECK(static_cast<int>(rows.size()) <= config_.max_rows,
               rows.size() << " rows, at most " << config_.max_rows);
  frame_ = frame;
  for (ops::StagedBuffer* memory : {&row_memory_, &result_memory_, &mask_memory_})
    memory->use_host(frame_);
  masks_.assign(rows.size(), {});
  masks_in_use_ = false;
  lay_out(std::max<int64_t>(std::ssize(rows), 1));
  std::vector<RowInfo>& infos = frames_[static_cast<size_t>(frame_)].rows;
  infos.clear();
  if (rows.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t slot = rows[i].slot;
    rows_.slot.host[i] = slot;
    rows_.position.host[i] = rows[i].position;
    rows_.forced.host[i] = rows[i].forced;
    infos.push_back({.position = rows[i].position,
                     .num_top = slot < 0 ? 0 : slots_[static_cast<size_t>(slot)].num_top});
  }
  row_memory_.upload(stream);
}

Tensor Sampler::paths(int64_t rows) const {
  if (config_.max_path == 0) return {};
  return Tensor::contiguous(path_memory_.data(), DType::kI32, {rows, config_.max_path});
}

DeviceRows Sampler::device_rows() const {
  const Tensor& position = rows_.position.device;
  return {.position = position, .paths = paths(position.dim(0))};
}

void Sampler::set_mask(int64_t row, std::span<const uint64_t> words) {
  FATHOM_CHECK(static_cast<int64_t>(words.size()) == num_mask_words(config_.vocab_size),
               words.size() << " mask words for " << config_.vocab_size << " tokens");
  masks_.at(static_cast<size_t>(row)) = words;
  frames_[static_cast<size_t>(frame_)].rows.at(static_cast<size_t>(row)).has_mask = !words.empty();
}

Tensor Sampler::send_masks(int64_t first_row, int64_t end, ops::Stream& stream) {
  const auto begin_mask = masks_.begin() + first_row, end_mask = masks_.begin() + end;
  const auto is_set = [](std::span<const uint64_t> mask) { return !mask.empty(); };
  if (std::none_of(begin_mask, end_mask, is_set)) return {};
  FATHOM_CHECK(end - first_row <= config_.max_sampled_rows,
               end - first_row << " rows at once, at most " << config_.max_sampled_rows);
  if (masks_in_use_) stream.synchronize();
  masks_in_use_ = true;
  mask_memory_.clear();
  const int64_t words = num_mask_words(config_.vocab_size);
  const Array<uint64_t> staged = mask_memory_.add<uint64_t>({end - first_row, words});
  auto* row = staged.host.data();
  for (auto mask = begin_mask; mask != end_mask; ++mask, row += words) {
    if (is_set(*mask)) {
      std::copy(mask->begin(), mask->end(), row);
    } else {
      std::fill_n(row, words, ~uint64_t{0});
    }
  }
  mask_memory_.upload(stream);
  return staged.device;
}

void Sampler::sample(int64_t first_row, const Tensor& logits, ops::Stream& stream) {
  const int64_t end = first_row + logits.dim(0);
  sample_rows(first_row, logits, send_masks(first_row, end, stream), stream);
}

bool Sampler::send_masks(ops::Stream& stream) {
  return !send_masks(0, static_cast<int64_t>(masks_.size()), stream).is_null();
}

void Sampler::sample_all(const Tensor& logits, bool masked, ops::Stream& stream) const {
  // Where send_masks() puts them: the first array of their buffer.
  const Tensor mask = Tensor::contiguous(const_cast<void*>(mask_memory_.device_data()), DType::kU64,
                                         {logits.dim(0), num_mask_words(config_.vocab_size)});
  sample_rows(0, logits, masked ? mask : Tensor(), stream);
}

void Sampler::sample_rows(int64_t first_row, const Tensor& logits, const Tensor& mask,
                          ops::Stream& stream) const {
  const int64_t end = first_row + logits.dim(0);
  const auto rows = [&](const auto& array) { return array.device.slice(0, first_row, end); };
  const Results& out = results();
  ops::sample({.slots = on_device_,
               .logits = logits,
               .slot = rows(rows_.slot),
               .position = rows(rows_.position),
               .forced = rows(rows_.forced),
               .mask = mask,
               .paths = config_.max_path == 0 ? Tensor() : paths(end).slice(0, first_row, end),
               .tokens = rows(out.tokens),
               .logprobs = rows(out.logprobs),
               .top_ids = rows(out.top_ids),
               .top_logprobs = rows(out.top_logprobs),
               .failed = rows(out.failed)},
              stream);
}

void Sampler::fetch(ops::Stream& stream) {
  if (!frames_[static_cast<size_t>(frame_)].rows.empty()) result_memory_.download(stream);
}

Result<core::SampledToken> Sampler::result(int frame, int64_t row,
                                           std::optional<int32_t> position) const {
  const size_t index = static_cast<size_t>(row);
  const Results& results = frames_.at(static_cast<size_t>(frame)).results;
  const RowInfo& info = frames_.at(static_cast<size_t>(frame)).rows.at(index);
  const std::string where =
      " for token " + std::to_string(position.value_or(info.position)) + " of the sequence";
  if (results.failed.host[index] == 1)
    return Error{ErrorCode::kNumeric, "the logits" + where + " are not finite"};
  if (results.failed.host[index] != 0)
    return Error{ErrorCode::kNumeric, (info.has_mask ? "grammar, logit_bias and stop tokens leave "
                                                     : "logit_bias and stop tokens leave ") +
                                          std::string(core::kNoTokenToChoose) + where};
  core::SampledToken token{.token = results.tokens.host[index],
                           .logprob = results.logprobs.host[index]};
  const size_t max_top = static_cast<size_t>(config_.max_top_logprobs);
  const int num_top = std::min(info.num_top, config_.vocab_size);
  for (size_t i = 0; i < static_cast<size_t>(num_top); ++i)
    token.top_logprobs.emplace_back(results.top_ids.host[index * max_top + i],
                                    results.top_logprobs.host[index * max_top + i]);
  return token;
}

}  // namespace fathom::sampling
