#include "runner/sim_runner.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/rng.h"

namespace fathom::runner {
namespace {

constexpr uint64_t kHashStart = 0x46617468'6f6d0001u;

constexpr uint64_t extend(uint64_t hash, int32_t token, int32_t position) {
  return mix64(hash ^ (uint64_t{static_cast<uint32_t>(token)} << 32 |
                       uint64_t{static_cast<uint32_t>(position)}));
}

int32_t pick(uint64_t hash, const SimRunner::NextToken& options) {
  const auto vocab_size = static_cast<uint64_t>(options.vocab_size);
  uint64_t token = mix64(hash ^ mix64(options.seed)) % vocab_size;
  const auto is_allowed = [&] {
    if (!options.mask.empty() && (options.mask[token / 64] >> (token % 64) & 1) == 0) return false;
    return std::find(options.banned.begin(), options.banned.end(), static_cast<int32_t>(token)) ==
           options.banned.end();
  };
  for (int tries = 0; tries < options.vocab_size; ++tries) {
    if (is_allowed()) return static_cast<int32_t>(token);
    token = (token + 1) % vocab_size;
  }
  return -1;
}

bool is_sampled(const core::SamplingParams& params) {
  return params.temperature > 0 && params.top_k != 1;
}

int32_t relative_position(const core::SequenceSlice& slice, int query_idx) {
  return slice.relative_positions.empty()
             ? query_idx
             : slice.relative_positions[static_cast<size_t>(query_idx)];
}

bool sees(const core::SequenceSlice& slice, int query_idx, int other_idx) {
  if (other_idx == query_idx) return true;
  if (slice.tree_mask.empty()) return other_idx < query_idx;
  return (slice.tree_mask[static_cast<size_t>(query_idx)] >> other_idx & 1) != 0;
}

}  // namespace

int32_t SimRunner::expected_next(std::span<const int32_t> tokens, const NextToken& options) {
  uint64_t hash = kHashStart;
  for (size_t i = 0; i < tokens.size(); ++i)
    hash = extend(hash, tokens[i], static_cast<int32_t>(i));
  return pick(hash, options);
}

SimRunner::SimRunner(const SimConfig& config)
    : config_(config),
      ledger_({.num_kv_groups = config.num_kv_groups,
               .num_blocks = config.num_blocks,
               .block_tokens = config.block_tokens,
               .max_slots = config.max_slots}) {
  info_.vocab_size = config.vocab_size;
  info_.max_slots = config.max_slots;
  info_.max_batch_tokens = config.max_batch_tokens;
  info_.max_context_tokens = std::min<int64_t>(config.max_context_tokens,
                                               int64_t{config.num_blocks} * config.block_tokens);
  for (int i = 0; i < config.num_kv_groups; ++i) {
    info_.kv_groups.push_back(
        {.name = "sim" + std::to_string(i),
         .num_blocks = config.num_blocks,
         .block_tokens = config.block_tokens,
         .block_bytes = int64_t{config.block_tokens} * static_cast<int64_t>(sizeof(Row))});
    KvGroup group;
    group.rows.resize(static_cast<size_t>(config.num_blocks) *
                      static_cast<size_t>(config.block_tokens));
    groups_.push_back(std::move(group));
  }
  slots_.resize(static_cast<size_t>(config.max_slots));
}

void SimRunner::submit(const core::Batch& batch) {
  FATHOM_CHECK(in_flight() < kMaxInFlight, in_flight() << " steps in flight");
  FATHOM_CHECK(batch.step_id == next_step_id_,
               "step " << batch.step_id << ", expected " << next_step_id_);
  ledger_.submit(batch);
  ++next_step_id_;
  queue_.push_back({batch, system_clock().now()});
}

core::StepResult SimRunner::wait() {
  FATHOM_CHECK(!queue_.empty(), "no step in flight");
  const Pending pending = std::move(queue_.front());
  queue_.pop_front();
  const core::Batch& batch = pending.batch;

  core::StepResult result{.step_id = batch.step_id};
  apply_deltas(batch);
  std::optional<core::StepMasks> step_masks;
  SliceMaskWords masks(batch.slices.size());
  if (wants_masks(batch)) {
    step_masks = masks_.take(batch.step_id);
    masks = masks_of_slices(batch, step_masks.value(), config_.vocab_size);
  }
  int num_tokens = 0;
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    result.slices.push_back(run_slice(batch.slices[i], masks[i]));
    num_tokens += batch.slices[i].num_tokens;
  }
  FATHOM_CHECK(num_tokens <= info_.max_batch_tokens,
               num_tokens << " query tokens, at most " << info_.max_batch_tokens);
  for (int32_t slot : batch.releases) {
    FATHOM_CHECK(slots_.at(static_cast<size_t>(slot)).active, "slot " << slot << " released twice");
    slots_[static_cast<size_t>(slot)] = Slot{};
  }
  ledger_.step_done(batch.step_id);
  if (config_.step_delay.count() > 0) {
    device_free_ = std::max(device_free_, pending.submitted) + config_.step_delay;
    std::this_thread::sleep_until(device_free_);
    result.seconds = std::chrono::duration<double>(config_.step_delay).count();
  }
  return result;
}

void SimRunner::apply_deltas(const core::Batch& batch) {
  for (const core::SlotAdmission& admission : batch.admissions) admit(admission);
  for (const core::BlockAppend& append : batch.block_appends) {
    Slot& slot = slots_.at(static_cast<size_t>(append.slot));
    FATHOM_CHECK(slot.active, "blocks for slot " << append.slot << ", which is free");
    auto& table = slot.block_tables.at(static_cast<size_t>(append.kv_group));
    table.insert(table.end(), append.block_ids.begin(), append.block_ids.end());
  }
  for (const core::SlotAdmission& admission : batch.admissions) check_cached_rows(admission);
}

// A model would go on from wrong rows without a word.
void SimRunner::check_cached_rows(const core::SlotAdmission& admission) const {
  const Slot& slot = slots_[static_cast<size_t>(admission.slot)];
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (int32_t i = 0; i < admission.num_cached_tokens; ++i) {
      const Row& row = groups_[group].rows[row_index(group, slot, i)];
      const int32_t token = admission.prompt[static_cast<size_t>(i)];
      FATHOM_CHECK(row.token == token && row.position == i,
                   "cached row " << i << " of slot " << admission.slot << " holds token "
                                 << row.token << " at position " << row.position << ", not "
                                 << token);
    }
  }
}

void SimRunner::admit(const core::SlotAdmission& admission) {
  Slot& slot = slots_.at(static_cast<size_t>(admission.slot));
  FATHOM_CHECK(!slot.active, "slot " << admission.slot << " is taken");
  FATHOM_CHECK(admission.num_cached_tokens < static_cast<int32_t>(admission.prompt.size()),
               admission.num_cached_tokens << " cached tokens of " << admission.prompt.size());
  slot.active = true;
  slot.admission = admission;
  slot.length = admission.num_cached_tokens;
  slot.last_token = -1;
  slot.block_tables.assign(groups_.size(), {});
}

size_t SimRunner::row_index(size_t kv_group, const Slot& slot, int32_t row_idx) const {
  const std::vector<int32_t>& table = slot.block_tables[kv_group];
  const auto block_tokens = static_cast<size_t>(config_.block_tokens);
  const size_t block_idx = static_cast<size_t>(row_idx) / block_tokens;
  FATHOM_CHECK(block_idx < table.size(), "row " << row_idx << " of slot " << slot.admission.slot
                                                << ", which has " << table.size() << " blocks");
  return static_cast<size_t>(table[block_idx]) * block_tokens +
         static_cast<size_t>(row_idx) % block_tokens;
}

void SimRunner::write_rows(const Slot& slot, const core::SequenceSlice& slice) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (int i = 0; i < slice.num_tokens; ++i) {
      const int32_t token =
          slice.tokens.empty() ? slot.last_token : slice.tokens[static_cast<size_t>(i)];
      FATHOM_CHECK(token >= 0 && token < config_.vocab_size, "token " << token);
      groups_[group].rows[row_index(group, slot, slot.length + i)] = {
          token, slot.length + relative_position(slice, i)};
    }
  }
}

uint64_t SimRunner::hash_visible(const Slot& slot, const core::SequenceSlice& slice,
                                 int query_idx) const {
  uint64_t hash = kHashStart;
  for (int32_t row_idx = 0; row_idx < slot.length + slice.num_tokens; ++row_idx) {
    const int slice_idx = row_idx - slot.length;
    if (slice_idx >= 0 && !sees(slice, query_idx, slice_idx)) continue;
    const Row& first = groups_[0].rows[row_index(0, slot, row_idx)];
    for (size_t group = 1; group < groups_.size(); ++group) {
      const Row& other = groups_[group].rows[row_index(group, slot, row_idx)];
      FATHOM_CHECK(other.token == first.token && other.position == first.position,
                   "row " << row_idx << " differs between KV groups 0 and " << group);
    }
    hash = extend(hash, first.token, first.position);
  }
  return hash;
}

core::SliceResult SimRunner::run_slice(const core::SequenceSlice& slice,
                                       std::span<const uint64_t> mask) {
  Slot& slot = slots_.at(static_cast<size_t>(slice.slot));
  FATHOM_CHECK(slot.active, "slice of slot " << slice.slot << ", which is free");
  FATHOM_CHECK(slice.tokens.empty() ? slice.num_tokens == 1
                                    : slice.tokens.size() == static_cast<size_t>(slice.num_tokens),
               slice.num_tokens << " tokens, " << slice.tokens.size() << " given");
  write_rows(slot, slice);

  core::SliceResult result{.slot = slice.slot};
  const core::SlotAdmission& admission = slot.admission;
  const int32_t num_known = static_cast<int32_t>(admission.prompt.size());
  const int32_t num_prompt = num_known - admission.num_generated_tokens;
  // Incremental for causal prefixes would be faster; hashing each query token afresh keeps the
  // oracle plain.
  for (int i = 0; i < slice.num_tokens; ++i) {
    const bool wants_output = slice.outputs == core::Outputs::kAll ||
                              (slice.outputs == core::Outputs::kLast && i + 1 == slice.num_tokens);
    const int32_t position = slot.length + relative_position(slice, i);
    const bool wants_prompt_logprob =
        admission.sampling.return_prompt_logprobs && position + 1 < num_prompt;
    if (!wants_output && !wants_prompt_logprob) continue;
    const uint64_t hash = hash_visible(slot, slice, i);
    if (wants_prompt_logprob)
      result.prompt_logprobs.push_back(
          describe(slot, hash, admission.prompt[static_cast<size_t>(position) + 1]));
    if (!wants_output) continue;
    NextToken options = options_of(slot, position + 1);
    const size_t row_words = (static_cast<size_t>(config_.vocab_size) + 63) / 64;
    if (!mask.empty()) options.mask = mask.subspan(result.tokens.size() * row_words, row_words);
    const int32_t token = pick(hash, options);
    if (token < 0 && result.error.empty()) result.error = "bans and mask leave no token to choose";
    result.tokens.push_back(describe(slot, hash, token));
  }
  slot.length += slice.num_tokens;
  if (!result.tokens.empty() && result.tokens.back().token >= 0) {
    slot.last_token = result.tokens.back().token;
  } else if (!result.tokens.empty() && slot.last_token < 0) {
    // A failed row leaves what was there before, which the step in flight must be able to read.
    slot.last_token = admission.prompt.back();
  }
  if (!result.error.empty()) {
    result.tokens.clear();
    result.prompt_logprobs.clear();
  }
  if (failpoint("sim_runner.slice")) {
    result.tokens.clear();
    result.prompt_logprobs.clear();
    result.error = "the logits are not finite (injected)";
  }
  return result;
}

SimRunner::NextToken SimRunner::options_of(const Slot& slot, int position) const {
  const core::SlotAdmission& admission = slot.admission;
  const int32_t num_prompt =
      static_cast<int32_t>(admission.prompt.size()) - admission.num_generated_tokens;
  NextToken options{.vocab_size = config_.vocab_size};
  if (is_sampled(admission.sampling)) options.seed = admission.seed;
  if (position - num_prompt < admission.sampling.min_new_tokens)
    options.banned = admission.stop_token_ids;
  return options;
}

core::SampledToken SimRunner::describe(const Slot& slot, uint64_t hash, int32_t token) const {
  core::SampledToken sampled{.token = token};
  sampled.logprob = -static_cast<float>(mix64(hash + 1) % 1024) / 1024.0f;
  const int num_top = std::min(slot.admission.sampling.num_top_logprobs, config_.vocab_size);
  for (int i = 0; i < num_top; ++i)
    sampled.top_logprobs.emplace_back((token + i) % config_.vocab_size,
                                      sampled.logprob - static_cast<float>(i));
  return sampled;
}

}  // namespace fathom::runner
