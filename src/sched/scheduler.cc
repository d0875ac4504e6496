#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"

namespace fathom::sched {
namespace {

// A lookup of a long prompt costs microseconds per thousand tokens, so a request that found no blocks does
// not look every step.
constexpr int kBlockedRetrySteps = 8;

bool ranks_before(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
}

}  // namespace

void PlannedStep::clear() {
  batch.admissions.clear();
  batch.block_appends.clear();
  batch.slices.clear();
  batch.releases.clear();
  slices.clear();
  first_admissions.clear();
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      blocks_(config.kv_groups, config.radix_cache),
      waiting_(config.policy, blocks_) {
  FATHOM_CHECK(
      config.chunked_prefill_size >= 1 && config.max_running_requests >= 1 &&
          config.max_running_requests <= std::min(config.num_slots, config.max_batch_tokens),
      "chunks of " << config.chunked_prefill_size << ", " << config.max_running_requests
                   << " running requests, " << config.num_slots << " slots, "
                   << config.max_batch_tokens << " tokens in a step");
  for (int32_t slot = config.num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::plan(int64_t step_id, PlannedStep& step) {
  step.clear();
  step.batch.step_id = step_id;
  step_tokens_left_ = config_.max_batch_tokens;
  retracted_in_this_plan_ = false;
  if (running_.size() > 1 && failpoint("scheduler.retract")) retract(*running_.back());
  plan_decodes(step);
  share_out_prefill();
  // After a retraction there is no room, and its sequence may still get a token from a step in flight.
  if (!retracted_in_this_plan_) plan_admissions(step_id, step);
  emit_chunks(step);
  // Released slots have no slice in this step; they can be admitted to from the next one on.
  step.batch.releases.swap(pending_releases_);
  free_slots_.insert(free_slots_.end(), step.batch.releases.begin(), step.batch.releases.end());
}

void Scheduler::plan_decodes(PlannedStep& step) {
  num_growing_ = 0;
  // running_ shrinks at its end when a sequence is retracted.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.wants_decode() && make_room(sequence, step.batch)) {
      step.batch.slices.push_back({.slot = sequence.slot, .wants_mask = sequence.is_masked});
      step.slices.push_back({.sequence = &sequence,
                             .first_position = sequence.num_rows,
                             .admission = sequence.num_admissions});
      ++sequence.num_rows;
      ++sequence.num_planned_outputs;
      --step_tokens_left_;
    }
    if (sequence.max_rows() > sequence.num_row_capacity) ++num_growing_;
  }
  FATHOM_CHECK(step_tokens_left_ >= 0, "more running sequences than tokens in a step");
}

bool Scheduler::make_room(Sequence& sequence, core::Batch& batch) {
  const int rows = sequence.num_rows + 1;
  while (true) {
    const KvBlocks::Provided provided = blocks_.provide(sequence, rows, batch);
    if (provided == KvBlocks::Provided::kReady) return true;
    if (provided == KvBlocks::Provided::kWait) return false;
    FATHOM_CHECK(running_.size() > 1, "one sequence of " << rows << " rows exceeds the pool");
    Sequence& victim = *running_.back();
    retract(victim);
    if (&victim == &sequence) return false;
  }
}

// Prompts that need more than this step offers share one half of it while shorter ones want the rest.
void Scheduler::share_out_prefill() {
  chunks_.clear();
  publishing_.clear();
  prefill_tokens_ = prefill_tokens_left_ =
      std::min(step_tokens_left_, config_.chunked_prefill_size);
  long_tokens_left_ = std::max(1, prefill_tokens_ / 2);
  for (Sequence* const sequence : running_) {
    if (sequence->num_computed_rows >= sequence->num_prefill_tokens) continue;
    publishing_.push_back(sequence);
    if (sequence->in_prefill()) start_chunk(*sequence, 0);
  }
}

void Scheduler::start_chunk(Sequence& sequence, int min_tokens) {
  const int remaining = sequence.num_prefill_tokens - sequence.num_rows;
  int num_tokens = std::min(remaining, prefill_tokens_left_);
  if (remaining > prefill_tokens_) {
    num_tokens = std::min(num_tokens, std::max(long_tokens_left_, min_tokens));
    long_tokens_left_ = std::max(0, long_tokens_left_ - num_tokens);
  }
  prefill_tokens_left_ -= num_tokens;
  chunks_.push_back({&sequence, num_tokens});
}

void Scheduler::plan_admissions(int64_t step_id, PlannedStep& step) {
  while (!waiting_.empty() && !free_slots_.empty() && prefill_tokens_left_ > 0 &&
         num_running() < config_.max_running_requests) {
    Sequence* const next = waiting_.next(step_id, publishing_);
    if (next == nullptr) return;
    if (next == blocked_ && step_id < blocked_until_step_ && !running_.empty() &&
        blocks_.num_available() <= blocked_at_available_)
      return;
    if (!admit(*next, step)) {
      blocked_until_step_ = blocked_ == next ? step_id + kBlockedRetrySteps : 0;
      return;
    }
    start_chunk(*next, blocks_.block_tokens());
    publishing_.push_back(next);
  }
}

bool Scheduler::admit(Sequence& sequence, PlannedStep& step) {
  const int num_tokens = sequence.num_known_tokens();
  const int rows = std::min(num_tokens + 1, sequence.max_rows());
  sequence.slot = free_slots_.back();
  blocks_.pin_prefix(sequence, sequence.reads_cache ? num_tokens - 1 : 0);
  const int num_cached = sequence.num_row_capacity;
  // Every running sequence can have one more block before this one takes its own.
  const bool fits = blocks_.can_provide(sequence, rows, num_growing_);
  const size_t num_appends = step.batch.block_appends.size();
  for (size_t i = 0; num_cached > 0 && fits && i < config_.kv_groups.size(); ++i)
    step.batch.block_appends.push_back({.slot = sequence.slot,
                                        .kv_group = static_cast<int32_t>(i),
                                        .block_ids = sequence.pin.block_ids(static_cast<int>(i))});
  if (!fits || blocks_.provide(sequence, rows, step.batch) != KvBlocks::Provided::kReady) {
    step.batch.block_appends.resize(num_appends);
    blocks_.release(sequence);
    sequence.slot = -1;
    // Fenced blocks come with the next step: then it is worth trying at once.
    blocked_ = fits ? nullptr : &sequence;
    blocked_at_available_ = blocks_.num_available();
    return false;
  }
  free_slots_.pop_back();
  waiting_.admitted(sequence);
  blocked_ = nullptr;
  running_.insert(position_in_running(sequence), &sequence);
  if (sequence.num_cached_tokens < 0) {
    sequence.num_cached_tokens = num_cached;
    stats_.num_prompt_tokens += sequence.num_prompt_tokens;
    stats_.num_cached_tokens += num_cached;
    step.first_admissions.push_back(&sequence);
  }
  ++sequence.num_admissions;
  sequence.num_rows = sequence.num_computed_rows = num_cached;
  sequence.num_prefill_tokens = num_tokens;
  sequence.num_planned_outputs = sequence.num_output_tokens();
  if (sequence.max_rows() > sequence.num_row_capacity) ++num_growing_;
  step.batch.admissions.push_back({.slot = sequence.slot,
                                   .num_cached_tokens = num_cached,
                                   .prompt = sequence.tokens,
                                   .num_generated_tokens = sequence.num_output_tokens(),
                                   .sampling = sequence.sampling,
                                   .stop_token_ids = sequence.stop_token_ids,
                                   .seed = sequence.seed});
  return true;
}

void Scheduler::emit_chunks(PlannedStep& step) {
  for (Chunk& chunk : chunks_) {
    const Sequence& sequence = *chunk.sequence;
    const int remaining = sequence.num_prefill_tokens - sequence.num_rows - chunk.num_tokens;
    const int extra = std::min(remaining, prefill_tokens_left_);
    chunk.num_tokens += extra;
    prefill_tokens_left_ -= extra;
    if (chunk.num_tokens > 0) emit_chunk(chunk, step);
  }
}

void Scheduler::emit_chunk(const Chunk& chunk, PlannedStep& step) {
  Sequence& sequence = *chunk.sequence;
  const int begin = sequence.num_rows, end = begin + chunk.num_tokens;
  const bool ends_prefill = end == sequence.num_prefill_tokens;
  const bool samples = ends_prefill && sequence.sampling.max_new_tokens > 0;
  const auto first = sequence.tokens.begin();
  step.batch.slices.push_back({.slot = sequence.slot,
                               .num_tokens = chunk.num_tokens,
                               .tokens = {first + begin, first + end},
                               .outputs = samples ? core::Outputs::kLast : core::Outputs::kNone,
                               .wants_mask = samples && sequence.is_masked});
  step.slices.push_back({.sequence = &sequence,
                         .first_position = begin,
                         .num_tokens = chunk.num_tokens,
                         .admission = sequence.num_admissions,
                         .ends_prefill = ends_prefill});
  stats_.num_prefill_tokens += chunk.num_tokens;
  sequence.num_rows = end;
  sequence.num_planned_outputs += samples ? 1 : 0;
}

void Scheduler::rows_computed(const PlannedSlice& slice) {
  Sequence& sequence = *slice.sequence;
  if (sequence.slot < 0 || sequence.num_admissions != slice.admission) return;
  sequence.num_computed_rows = slice.first_position + slice.num_tokens;
  // Others may have the same prompt; what is generated is published in one go at the end.
  if (sequence.num_computed_rows <= sequence.num_prefill_tokens) blocks_.publish(sequence);
}

void Scheduler::retract(Sequence& sequence) {
  running_.pop_back();
  release_resources(sequence, Rows::kValid);
  ++sequence.num_retractions;
  ++stats_.num_retractions;
  retracted_in_this_plan_ = true;
  waiting_.add(sequence);
}

void Scheduler::release_resources(Sequence& sequence, Rows rows) {
  if (rows == Rows::kValid) blocks_.publish(sequence);
  pending_releases_.push_back(sequence.slot);
  sequence.slot = -1;
  blocks_.release(sequence);
}

void Scheduler::remove(Sequence& sequence, Rows rows) {
  if (sequence.slot < 0) {
    waiting_.remove(sequence);
  } else {
    running_.erase(position_in_running(sequence));
    release_resources(sequence, rows);
  }
  if (blocked_ == &sequence) blocked_ = nullptr;
  // Rows of its prompt that were published before it failed may hold what made it fail.
  if (rows == Rows::kInvalid) blocks_.clear();
}

std::vector<Sequence*>::iterator Scheduler::position_in_running(const Sequence& sequence) {
  return std::lower_bound(running_.begin(), running_.end(), &sequence, ranks_before);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  stats.num_evicted_blocks = blocks_.num_evicted_blocks();
  return stats;
}

std::string Scheduler::check_integrity() const {
  if (std::string problem = blocks_.check_integrity(running_); !problem.empty()) return problem;
  std::vector<int> uses(static_cast<size_t>(config_.num_slots), 0);
  for (const Sequence* sequence : running_) ++uses.at(static_cast<size_t>(sequence->slot));
  for (const int32_t slot : free_slots_) ++uses.at(static_cast<size_t>(slot));
  for (const int32_t slot : pending_releases_) ++uses.at(static_cast<size_t>(slot));
  for (size_t slot = 0; slot < uses.size(); ++slot)
    if (uses[slot] != 1)
      return "slot " + std::to_string(slot) + " is running, free or to release " +
             std::to_string(uses[slot]) + " times";
  for (const Sequence* sequence : waiting_)
    if (sequence->slot >= 0 || sequence->ended || sequence->num_row_capacity != 0 ||
        sequence->pin.num_blocks() != 0)
      return "request " + std::to_string(sequence->id) + " waits and holds a slot or blocks";
  for (const Sequence* sequence : running_)
    if (sequence->ended || sequence->num_computed_rows > sequence->num_rows ||
        sequence->num_rows > sequence->max_rows())
      return "request " + std::to_string(sequence->id) + " runs with " +
             std::to_string(sequence->num_rows) + " rows, " +
             std::to_string(sequence->num_computed_rows) + " computed";
  if (!std::is_sorted(running_.begin(), running_.end(), ranks_before))
    return "running sequences are not in the order of their rank";
  return "";
}

}  // namespace fathom::sched
