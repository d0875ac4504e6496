#include "runner/sim/sim_runner.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/rng.h"
#include "base/token_mask.h"
#include "runner/sim/hash.h"

namespace fathom::runner {
namespace {

constexpr const char* kNoToken = "bans and mask leave no token to choose";

int32_t pick(uint64_t hash, const SimRunner::NextToken& options) {
  const auto vocab_size = static_cast<uint64_t>(options.vocab_size);
  uint64_t token = mix64(hash ^ mix64(options.seed)) % vocab_size;
  const auto is_allowed = [&] {
    if (!options.mask.empty() && !mask_allows(options.mask.data(), static_cast<int64_t>(token)))
      return false;
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
  uint64_t hash = kSimHashStart;
  for (size_t i = 0; i < tokens.size(); ++i)
    hash = sim_extend(hash, tokens[i], static_cast<int32_t>(i));
  return pick(hash, options);
}

int32_t SimRunner::Tree::child_of(int32_t node, int32_t token) const {
  const auto child =
      std::find(drafts.begin(), drafts.end(), core::Draft{.token = token, .parent = node - 1});
  return child == drafts.end() ? -1 : static_cast<int32_t>(child - drafts.begin()) + 1;
}

int32_t SimRunner::Tree::first_child_of(int32_t node) const {
  const auto child = std::find_if(drafts.begin(), drafts.end(), [&](const core::Draft& draft) {
    return draft.parent == node - 1;
  });
  return child == drafts.end() ? -1 : static_cast<int32_t>(child - drafts.begin()) + 1;
}

SimRunner::SimRunner(const SimConfig& config)
    : config_(config),
      drafter_(config.drafter, config.vocab_size),
      cost_(config.cost),
      storage_({.num_target_groups = config.num_kv_groups,
                .has_drafter = config.drafter.shape.num_steps > 0,
                .num_blocks = config.num_blocks,
                .block_tokens = config.block_tokens}),
      ledger_({.num_kv_groups = storage_.num_groups(),
               .num_blocks = config.num_blocks,
               .block_tokens = config.block_tokens,
               .max_slots = config.max_slots}) {
  info_.vocab_size = config.vocab_size;
  info_.max_slots = config.max_slots;
  info_.max_batch_tokens = config.max_batch_tokens;
  info_.step_start_tokens = config.cost.step_start_tokens;
  info_.max_context_tokens = std::min<int64_t>(config.max_context_tokens,
                                               int64_t{config.num_blocks} * config.block_tokens);
  info_.drafter = config.drafter.shape;
  for (int i = 0; i < storage_.num_groups(); ++i) {
    const bool is_drafters = i >= config.num_kv_groups;
    info_.kv_groups.push_back({.name = is_drafters ? "drafter" : "sim" + std::to_string(i),
                               .num_blocks = config.num_blocks,
                               .block_tokens = config.block_tokens,
                               .block_bytes = int64_t{config.block_tokens} *
                                              static_cast<int64_t>(sizeof(SimStorage::Row)),
                               .lookahead_tokens = is_drafters ? 1 : 0});
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
  if (config_.collectives != nullptr) meet_other_lanes(batch);
  SharedMasks step_masks;
  SliceMaskWords masks(batch.slices.size());
  if (wants_masks(batch)) {
    step_masks = masks_.take(batch.step_id);
    masks = masks_of_slices(batch, *step_masks, config_.vocab_size);
  }
  int num_tokens = 0;
  std::vector<int32_t> lengths;
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    const core::SequenceSlice& slice = batch.slices[i];
    cost_.add(slice.num_tokens, slots_.at(static_cast<size_t>(slice.slot)).length,
              slice.kind() == core::SliceKind::kPrefill);
    result.slices.push_back(run_slice(slice, masks[i]));
    lengths.push_back(slots_[static_cast<size_t>(slice.slot)].length);
    num_tokens += slice.num_tokens;
  }
  FATHOM_CHECK(num_tokens <= info_.max_batch_tokens,
               num_tokens << " query tokens, at most " << info_.max_batch_tokens);
  for (int32_t slot : batch.releases) {
    FATHOM_CHECK(slots_.at(static_cast<size_t>(slot)).active, "slot " << slot << " released twice");
    slots_[static_cast<size_t>(slot)] = Slot{};
  }
  ledger_.step_done(batch.step_id, lengths);
  if (config_.step_delay.count() > 0) {
    device_free_ = std::max(device_free_, pending.submitted) + config_.step_delay;
    std::this_thread::sleep_until(device_free_);
    result.wall_seconds = std::chrono::duration<double>(config_.step_delay).count();
  }
  if (cost_.is_set()) result.wall_seconds = cost_.end_step(batch.step_id);
  return result;
}

void SimRunner::meet_other_lanes(const core::Batch& batch) {
  SimCollectives::Step step{.step_id = batch.step_id,
                            .entered = collectives_of(batch, config_.lane, config_.drafter.shape)};
  is_dead_ = is_dead_ || failpoint("sim_runner.dies");
  if (is_dead_) return;
  if (!step.entered.empty() && failpoint("sim_runner.collective")) step.entered.pop_back();
  config_.collectives->enter(config_.lane, step);
}

void SimRunner::apply_deltas(const core::Batch& batch) {
  for (const core::SlotAdmission& admission : batch.admissions) admit(admission);
  for (const core::BlockAppend& append : batch.block_appends) {
    Slot& slot = slots_.at(static_cast<size_t>(append.slot));
    FATHOM_CHECK(slot.active, "blocks for slot " << append.slot << ", which is free");
    auto& blocks = slot.table.groups.at(static_cast<size_t>(append.kv_group));
    blocks.insert(blocks.end(), append.block_ids.begin(), append.block_ids.end());
  }
  // A model would go on from wrong rows without a word.
  for (const core::SlotAdmission& admission : batch.admissions)
    storage_.check_prefix(slots_[static_cast<size_t>(admission.slot)].table,
                          admission.num_cached_tokens, admission.prompt);
}

void SimRunner::admit(const core::SlotAdmission& admission) {
  Slot& slot = slots_.at(static_cast<size_t>(admission.slot));
  FATHOM_CHECK(!slot.active, "slot " << admission.slot << " is taken");
  FATHOM_CHECK(admission.num_cached_tokens < static_cast<int32_t>(admission.prompt.size()),
               admission.num_cached_tokens << " cached tokens of " << admission.prompt.size());
  slot = Slot{.active = true, .admission = admission, .length = admission.num_cached_tokens};
  slot.table = {.slot = admission.slot};
  slot.table.groups.resize(static_cast<size_t>(storage_.num_groups()));
}

core::SliceResult SimRunner::run_slice(const core::SequenceSlice& slice,
                                       std::span<const uint64_t> mask) {
  Slot& slot = slots_.at(static_cast<size_t>(slice.slot));
  FATHOM_CHECK(slot.active, "slice of slot " << slice.slot << ", which is free");
  core::SliceResult result = slice.kind() == core::SliceKind::kPrefill
                                 ? run_prefill(slot, slice, mask)
                                 : run_advance(slot, slice, mask);
  result.slot = slice.slot;
  if (failpoint("sim_runner.slice")) result.error = "the logits are not finite (injected)";
  if (!result.error.empty()) {
    result.tokens.clear();
    result.prompt_logprobs.clear();
  }
  return result;
}

void SimRunner::write_given_rows(const Slot& slot, const core::SequenceSlice& slice) {
  FATHOM_CHECK(slice.tokens.size() == static_cast<size_t>(slice.num_tokens),
               slice.num_tokens << " tokens, " << slice.tokens.size() << " given");
  FATHOM_CHECK(slot.length + slice.num_tokens <= slot.admission.max_rows,
               "slot " << slice.slot << " gets " << slot.length + slice.num_tokens
                       << " rows, may have " << slot.admission.max_rows);
  FATHOM_CHECK(slice.relative_positions.empty() || config_.drafter.shape.num_steps == 0,
               "a tree of given tokens with a drafter, which has trees of its own");
  for (int i = 0; i < slice.num_tokens; ++i) {
    const int32_t token = slice.tokens[static_cast<size_t>(i)];
    FATHOM_CHECK(token >= 0 && token < config_.vocab_size, "token " << token);
    storage_.write(slot.table, slot.length + i,
                   {.token = token, .position = slot.length + relative_position(slice, i)});
  }
}

uint64_t SimRunner::hash_visible(const Slot& slot, const core::SequenceSlice& slice, int query_idx,
                                 uint64_t prefix_hash) const {
  uint64_t hash = prefix_hash;
  for (int i = 0; i < slice.num_tokens; ++i) {
    if (!sees(slice, query_idx, i)) continue;
    const SimStorage::Row row = storage_.read(slot.table, slot.length + i);
    hash = sim_extend(hash, row.token, row.position);
  }
  return hash;
}

core::SliceResult SimRunner::run_prefill(Slot& slot, const core::SequenceSlice& slice,
                                         std::span<const uint64_t> mask) {
  write_given_rows(slot, slice);
  core::SliceResult result;
  const core::SlotAdmission& admission = slot.admission;
  const int32_t num_prompt =
      static_cast<int32_t>(admission.prompt.size()) - admission.num_generated_tokens;
  const uint64_t prefix_hash = storage_.hash_prefix(slot.table, slot.length, slice.tokens[0]);
  uint64_t hash = 0;
  // Incremental for causal slices would be faster; hashing each query token afresh keeps the
  // oracle plain.
  for (int i = 0; i < slice.num_tokens; ++i) {
    const bool wants_output = slice.outputs == core::Outputs::kAll ||
                              (slice.outputs == core::Outputs::kLast && i + 1 == slice.num_tokens);
    const int32_t position = slot.length + relative_position(slice, i);
    const bool wants_prompt_logprob =
        admission.sampling.return_prompt_logprobs && position + 1 < num_prompt;
    if (!wants_output && !wants_prompt_logprob) continue;
    hash = hash_visible(slot, slice, i, prefix_hash);
    if (wants_prompt_logprob)
      result.prompt_logprobs.push_back(
          describe(slot, hash, admission.prompt[static_cast<size_t>(position) + 1]));
    if (!wants_output) continue;
    NextToken options = options_of(slot, position + 1);
    options.mask = mask_row(mask, result.tokens.size());
    const int32_t token = pick(hash, options);
    if (token < 0) result.error = kNoToken;
    result.tokens.push_back(describe(slot, hash, token));
  }
  if (!result.tokens.empty() && result.tokens.back().token >= 0) {
    slot.last_token = result.tokens.back().token;
  } else if (!result.tokens.empty() && slot.last_token < 0) {
    // A failed row leaves what was there before, which the step in flight must be able to read.
    slot.last_token = admission.prompt.back();
  }
  const int32_t first_row = slot.length;
  slot.length += slice.num_tokens;
  draft(slot, first_row, result.tokens.empty() ? 0 : slice.num_drafts_to_propose, hash);
  result.drafts = slot.drafts;
  return result;
}

core::SliceResult SimRunner::run_advance(Slot& slot, const core::SequenceSlice& slice,
                                         std::span<const uint64_t> mask) {
  FATHOM_CHECK(slice.kind() == core::SliceKind::kDecode || slice.outputs == core::Outputs::kAll,
               "a verify slice of slot " << slice.slot << " wants some of its outputs only");
  FATHOM_CHECK(slot.last_token >= 0,
               "slot " << slice.slot << " goes on from a token that it does not have");
  core::SliceResult result;
  if (slot.length >= slot.admission.max_rows) return result;  // inert
  const Tree tree = write_draft_rows(slot, slice.num_tokens - 1);
  result.num_verified_drafts = tree.num_nodes() - 1;
  Path path = confirm(slot, tree, mask);
  if (path.nodes.empty()) {
    // As if it had chosen the token that it goes on from: the step in flight must be able to read one.
    result.error = kNoToken;
    path.nodes = {0};
  } else {
    slot.last_token = path.tokens.back().token;
  }
  const int32_t first_row = slot.length;
  for (int32_t i = 1; i < static_cast<int32_t>(path.nodes.size()); ++i) {
    const int32_t node = path.nodes[static_cast<size_t>(i)];
    if (node != i && !failpoint("sim_runner.compact"))
      storage_.move(slot.table, first_row + node, first_row + i);
  }
  slot.length += static_cast<int32_t>(path.nodes.size());
  draft(slot, first_row, result.error.empty() ? slice.num_drafts_to_propose : 0, path.hash);
  result.tokens = std::move(path.tokens);
  result.drafts = slot.drafts;
  return result;
}

SimRunner::Tree SimRunner::write_draft_rows(const Slot& slot, int max_drafts) {
  const int32_t room = slot.admission.max_rows - slot.length - 1;
  const auto num_drafts = static_cast<size_t>(
      std::min<int64_t>({max_drafts, room, static_cast<int64_t>(slot.drafts.size())}));
  Tree tree{.drafts = {slot.drafts.begin(), slot.drafts.begin() + static_cast<int64_t>(num_drafts)},
            .depths = {0}};
  storage_.write(slot.table, slot.length, {.token = slot.last_token, .position = slot.length});
  for (const core::Draft& draft : tree.drafts) {
    const int32_t row_idx = slot.length + tree.num_nodes();
    const int32_t parent_node = draft.parent + 1;
    tree.depths.push_back(tree.depths[static_cast<size_t>(parent_node)] + 1);
    storage_.write(slot.table, row_idx,
                   {.token = draft.token, .position = slot.length + tree.depths.back()});
  }
  return tree;
}

SimRunner::Path SimRunner::confirm(const Slot& slot, const Tree& tree,
                                   std::span<const uint64_t> mask) const {
  Path path{.nodes = {0}, .hash = storage_.hash_prefix(slot.table, slot.length, slot.last_token)};
  while (true) {
    const int32_t node = path.nodes.back();
    const SimStorage::Row row = storage_.read(slot.table, slot.length + node);
    const uint64_t hash = sim_extend(path.hash, row.token, row.position);
    NextToken options = options_of(slot, row.position + 1);
    options.mask = mask_row(mask, static_cast<size_t>(node));
    int32_t token = pick(hash, options);
    if (token < 0) {
      // A draft after which nothing can be chosen is not accepted: it fails as the last token of the next step.
      path.nodes.pop_back();
      return path;
    }
    path.hash = hash;
    int32_t next = tree.child_of(node, token);
    if (next < 0 && tree.first_child_of(node) >= 0 && failpoint("sim_runner.accept")) {
      next = tree.first_child_of(node);
      token = tree.drafts[static_cast<size_t>(next) - 1].token;
    }
    path.tokens.push_back(describe(slot, hash, token));
    if (next < 0) return path;
    path.nodes.push_back(next);
  }
}

void SimRunner::draft(Slot& slot, int32_t first_row, int num_drafts, uint64_t hash) {
  slot.drafts.clear();
  if (config_.drafter.shape.num_steps == 0) {
    FATHOM_CHECK(num_drafts == 0, "drafts of slot " << slot.table.slot << " without a drafter");
    return;
  }
  const std::vector<int32_t>& prompt = slot.admission.prompt;
  for (int32_t row_idx = first_row; row_idx < slot.length; ++row_idx) {
    const bool is_last = row_idx + 1 == slot.length;
    const int32_t next_token = !is_last ? storage_.read(slot.table, row_idx + 1).token
                               : slot.length < static_cast<int32_t>(prompt.size())
                                   ? prompt[static_cast<size_t>(slot.length)]
                                   : slot.last_token;
    storage_.complete(slot.table, row_idx, next_token);
  }
  if (num_drafts == 0) return;
  slot.drafts = drafter_.propose(num_drafts, sim_extend(hash, slot.last_token, slot.length),
                                 slot.length, [&](uint64_t draft_hash, int32_t position) {
                                   return pick(draft_hash, options_of(slot, position));
                                 });
}

std::span<const uint64_t> SimRunner::mask_row(std::span<const uint64_t> mask, size_t row) const {
  const auto row_words = static_cast<size_t>(num_mask_words(config_.vocab_size));
  return mask.empty() ? mask : mask.subspan(row * row_words, row_words);
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
