#include "sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/startup_error.h"
#include "base/token_mask.h"

namespace fathom::sampling {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int32_t kInPrompt = std::numeric_limits<int32_t>::min();  // bit 31
// Room for logit biases and bans before the staging buffer has to grow.
constexpr int64_t kUsualBiases = 4096;

bool has_penalties(const core::SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

int64_t parameter_bytes(int64_t rows, int64_t biases) {
  using Staged = ops::StagedBuffer;
  return 13 * Staged::array_bytes<int32_t>(rows) + Staged::array_bytes<uint64_t>(rows) +
         Staged::array_bytes<int32_t>(rows + 1) + 2 * Staged::array_bytes<int32_t>(biases);
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
      backend_(backend),
      slots_(static_cast<size_t>(config.max_slots)),
      parameter_memory_(backend, parameter_bytes(config.max_rows, kUsualBiases), kNumFrames),
      result_memory_(backend, result_bytes(config.max_rows, config.max_top_logprobs), kNumFrames),
      mask_memory_(backend, mask_bytes(config), kNumFrames) {
  const int64_t counts_bytes =
      int64_t{config.max_slots} * config.vocab_size * static_cast<int64_t>(sizeof(int32_t));
  std::optional<ops::DeviceBuffer> counts = ops::DeviceBuffer::allocate(backend, counts_bytes);
  if (!counts)
    throw StartupError("the penalty counts of " + std::to_string(config.max_slots) +
                       " running requests need " + std::to_string(counts_bytes) + " bytes, " +
                       std::string(backend.device) + " has " +
                       std::to_string(backend.free_memory_bytes()) +
                       " free: lower the number of running requests");
  counts_memory_ = std::move(*counts);
  const int64_t path_bytes =
      int64_t{config.max_rows} * config.max_path * static_cast<int64_t>(sizeof(int32_t));
  std::optional<ops::DeviceBuffer> paths = ops::DeviceBuffer::allocate(backend, path_bytes);
  if (!paths)
    throw StartupError("the drafts of a step need " + std::to_string(path_bytes) + " bytes on " +
                       std::string(backend.device) + ", there is no room for them");
  path_memory_ = std::move(*paths);
  for (int32_t row = config.max_slots - 1; row >= 0; --row) free_penalty_rows_.push_back(row);
  lay_out(1, 0);
}

int64_t Sampler::num_bytes() const {
  return counts_memory_.num_bytes() + parameter_memory_.num_bytes() + result_memory_.num_bytes() +
         mask_memory_.num_bytes() + path_memory_.num_bytes();
}

Tensor Sampler::counts() const {
  if (free_penalty_rows_.size() == slots_.size()) return {};
  return Tensor::contiguous(counts_memory_.data(), DType::kI32,
                            {config_.max_slots, config_.vocab_size});
}

void Sampler::admit(const core::SlotAdmission& admission, ops::Stream& stream) {
  Slot& slot = slots_[static_cast<size_t>(admission.slot)];
  FATHOM_CHECK(admission.sampling.num_top_logprobs <= config_.max_top_logprobs,
               "num_top_logprobs is " << admission.sampling.num_top_logprobs);
  slot.params = admission.sampling;
  slot.stop_token_ids = admission.stop_token_ids;
  slot.seed = admission.seed;
  slot.num_prompt_tokens =
      static_cast<int32_t>(admission.prompt.size()) - admission.num_generated_tokens;
  slot.penalty_row = -1;
  if (!has_penalties(slot.params)) return;

  slot.penalty_row = free_penalty_rows_.back();
  free_penalty_rows_.pop_back();
  staged_counts_.assign(static_cast<size_t>(config_.vocab_size), 0);
  for (size_t i = 0; i < admission.prompt.size(); ++i) {
    int32_t& count = staged_counts_[static_cast<size_t>(admission.prompt[i])];
    if (static_cast<int32_t>(i) < slot.num_prompt_tokens) {
      count |= kInPrompt;
    } else {
      ++count;
    }
  }
  const Tensor row = counts()[slot.penalty_row];
  backend_.copy_to_device(row.data(), staged_counts_.data(), row.num_bytes(), stream);
  stream.synchronize();  // the staging vector is used by the next admission
}

void Sampler::release(int32_t slot) {
  int32_t& penalty_row = slots_[static_cast<size_t>(slot)].penalty_row;
  if (penalty_row >= 0) free_penalty_rows_.push_back(penalty_row);
  penalty_row = -1;
}

bool Sampler::bans_stops(const SampleRow& row) const {
  const Slot& slot = slot_of(row);
  return row.forced < 0 && row.position - slot.num_prompt_tokens < slot.params.min_new_tokens;
}

int64_t Sampler::num_biases(std::span<const SampleRow> rows) const {
  size_t count = 0;
  for (const SampleRow& row : rows) {
    if (row.slot < 0) continue;
    if (row.forced < 0) count += slot_of(row).params.logit_bias.size();
    if (bans_stops(row)) count += slot_of(row).stop_token_ids.size();
  }
  return static_cast<int64_t>(count);
}

void Sampler::lay_out(int64_t rows, int64_t biases) {
  parameter_memory_.reserve(parameter_bytes(rows, biases));
  for (Array<float>* array :
       {&parameters_.temperature, &parameters_.top_p, &parameters_.min_p, &parameters_.repetition,
        &parameters_.frequency, &parameters_.presence})
    *array = parameter_memory_.add<float>({rows});
  for (Array<int32_t>* array :
       {&parameters_.top_k, &parameters_.position, &parameters_.penalty_row, &parameters_.num_top,
        &parameters_.forced, &parameters_.ban_start, &parameters_.ban_until})
    *array = parameter_memory_.add<int32_t>({rows});
  parameters_.seed = parameter_memory_.add<uint64_t>({rows});
  parameters_.bias_start = parameter_memory_.add<int32_t>({rows + 1});
  parameters_.bias_ids = parameter_memory_.add<int32_t>({biases});
  parameters_.bias_values = parameter_memory_.add<float>({biases});

  const int64_t max_top = config_.max_top_logprobs;
  result_memory_.clear();
  Results& results = frames_[static_cast<size_t>(frame_)].results;
  results.tokens = result_memory_.add<int32_t>({rows});
  results.logprobs = result_memory_.add<float>({rows});
  results.top_ids = result_memory_.add<int32_t>({rows, max_top});
  results.top_logprobs = result_memory_.add<float>({rows, max_top});
  results.failed = result_memory_.add<uint8_t>({rows});
}

void Sampler::begin_step(std::span<const SampleRow> rows, const StepShape& shape,
                         ops::Stream& stream) {
  FATHOM_CHECK(static_cast<int>(rows.size()) <= config_.max_rows,
               rows.size() << " rows, at most " << config_.max_rows);
  const int64_t biases = num_biases(rows);
  FATHOM_CHECK(shape.fixed_biases == 0 || biases <= shape.fixed_biases,
               biases << " biases, room for " << shape.fixed_biases);
  frame_ = shape.frame;
  for (ops::StagedBuffer* memory : {&parameter_memory_, &result_memory_, &mask_memory_})
    memory->use_host(frame_);
  masks_.assign(rows.size(), {});
  masks_in_use_ = false;
  const auto num_rows = std::max<int64_t>(static_cast<int64_t>(rows.size()), 1);
  const int64_t room = std::max(biases, shape.fixed_biases);
  // Growing moves the memory of both frames, and the step in the other one may still copy from there.
  if (parameter_bytes(num_rows, room) > parameter_memory_.num_bytes()) stream.synchronize();
  lay_out(num_rows, room);
  std::vector<RowInfo>& infos = frames_[static_cast<size_t>(frame_)].rows;
  infos.clear();
  if (rows.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) {
    fill_row(i, rows[i]);
    infos.push_back({.position = rows[i].position, .num_top = parameters_.num_top.host[i]});
  }
  fill_biases(rows);
  parameter_memory_.upload(stream);
}

void Sampler::fill_row(size_t row_idx, const SampleRow& row) {
  // A padding row takes the shortest way: the largest logit.
  static const Slot padding = [] {
    Slot slot;
    slot.params.temperature = 0;
    return slot;
  }();
  const Slot& slot = row.slot < 0 ? padding : slot_of(row);
  const core::SamplingParams& params = slot.params;
  const bool chooses = row.forced < 0;
  parameters_.temperature.host[row_idx] = params.temperature;
  parameters_.top_p.host[row_idx] = params.top_p;
  parameters_.min_p.host[row_idx] = params.min_p;
  parameters_.repetition.host[row_idx] = params.repetition_penalty;
  parameters_.frequency.host[row_idx] = params.frequency_penalty;
  parameters_.presence.host[row_idx] = params.presence_penalty;
  parameters_.top_k.host[row_idx] = params.top_k;
  parameters_.position.host[row_idx] = row.position;
  // Log-probabilities are of the raw logits, so a forced row needs no counts.
  parameters_.penalty_row.host[row_idx] = chooses ? slot.penalty_row : -1;
  parameters_.num_top.host[row_idx] = params.num_top_logprobs;
  parameters_.forced.host[row_idx] = row.forced;
  parameters_.seed.host[row_idx] = slot.seed;
  parameters_.ban_until.host[row_idx] = slot.num_prompt_tokens + params.min_new_tokens;
}

void Sampler::fill_biases(std::span<const SampleRow> rows) {
  size_t count = 0;
  const auto add = [&](int32_t token, float bias) {
    parameters_.bias_ids.host[count] = token;
    parameters_.bias_values.host[count] = bias;
    ++count;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    parameters_.bias_start.host[i] = parameters_.ban_start.host[i] = static_cast<int32_t>(count);
    if (rows[i].slot < 0) continue;
    const Slot& slot = slot_of(rows[i]);
    if (rows[i].forced < 0)
      for (const auto& [token, bias] : slot.params.logit_bias) add(token, bias);
    parameters_.ban_start.host[i] = static_cast<int32_t>(count);
    if (bans_stops(rows[i]))
      for (int32_t token : slot.stop_token_ids) add(token, -std::numeric_limits<float>::infinity());
  }
  parameters_.bias_start.host[rows.size()] = static_cast<int32_t>(count);
}

Tensor Sampler::paths(int64_t rows) const {
  if (config_.max_path == 0) return {};
  return Tensor::contiguous(path_memory_.data(), DType::kI32, {rows, config_.max_path});
}

DeviceRows Sampler::device_rows() const {
  return {.position = parameters_.position.device,
          .ban_start = parameters_.ban_start.device,
          .ban_until = parameters_.ban_until.device,
          .bias_start = parameters_.bias_start.device,
          .bias_values = parameters_.bias_values.device,
          .paths = paths(parameters_.position.device.dim(0))};
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
  const Parameters& p = parameters_;
  const Results& out = results();
  ops::sample({.logits = logits,
               .temperature = rows(p.temperature),
               .top_k = rows(p.top_k),
               .top_p = rows(p.top_p),
               .min_p = rows(p.min_p),
               .repetition = rows(p.repetition),
               .frequency = rows(p.frequency),
               .presence = rows(p.presence),
               .seed = rows(p.seed),
               .position = rows(p.position),
               .penalty_row = rows(p.penalty_row),
               .counts = counts(),
               .bias_start = p.bias_start.device.slice(0, first_row, end + 1),
               .bias_ids = p.bias_ids.device,
               .bias_values = p.bias_values.device,
               .mask = mask,
               .num_top = rows(p.num_top),
               .forced = rows(p.forced),
               .tokens = rows(out.tokens),
               .logprobs = rows(out.logprobs),
               .top_ids = rows(out.top_ids),
               .top_logprobs = rows(out.top_logprobs),
               .failed = rows(out.failed),
               .paths = config_.max_path == 0 ? Tensor() : paths(end).slice(0, first_row, end)},
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
    return Error{ErrorCode::kNumeric, (info.has_mask ? "grammar, logit_bias and stop tokens leave"
                                                     : "logit_bias and stop tokens leave") +
                                          std::string(" no token to choose") + where};
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
