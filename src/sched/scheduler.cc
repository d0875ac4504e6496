#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/prefetch.h"

namespace fathom::sched {
namespace {

// A lookup of a long prompt costs microseconds per thousand tokens, so a request that found no blocks does
// not look every step.
constexpr int kBlockedRetrySteps = 8;

// Steps are planned for the bound less what predictions are usually off, some times over.
double planned_part(double error) { return 1 - std::clamp(1.5 * error, 0.05, 0.3); }

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
  work = {};
  predicted_seconds = 0;
  has_streams = is_cut = false;
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(config),
      blocks_(config.kv_groups, config.radix_cache),
      waiting_(config.policy, blocks_),
      num_drafts_(config.num_drafts),
      prefill_budget_(config.slice_work, blocks_.block_tokens()) {
  FATHOM_CHECK(
      config.chunked_prefill_size >= 1 && config.max_running_requests >= 1 &&
          config.max_running_requests <= std::min(config.num_slots, config.max_batch_tokens),
      "chunks of " << config.chunked_prefill_size << ", " << config.max_running_requests
                   << " running requests, " << config.num_slots << " slots, "
                   << config.max_batch_tokens << " tokens in a step");
  for (int32_t slot = config.num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  if (config.max_step_seconds > 0) cost_.emplace(config.slice_work(1, 0).linear);
}

void Scheduler::plan(int64_t step_id, PlannedStep& step) {
  step.clear();
  step.batch.step_id = step_id;
  ++num_plans_;  // a plan that comes to nothing is made again for the same step
  step_tokens_left_ = config_.max_batch_tokens;
  retracted_in_this_plan_ = false;
  if (is_paused()) {
    while (pause_ == Pause::kRetract && !running_.empty()) retract(*running_.back());
    return plan_releases(step);
  }
  if (running_.size() > 1 && failpoint("scheduler.retract")) retract(*running_.back());
  plan_decodes(step);
  share_out_prefill(step);
  // After a retraction there is no room, and its sequence may still get a token from a step in flight.
  if (!retracted_in_this_plan_) plan_admissions(step_id, step);
  emit_chunks(step);
  if (cost_) step.predicted_seconds = cost_->seconds(step.work);
  plan_releases(step);
}

// Released slots have no slice in this step; they can be admitted to from the next one on.
void Scheduler::plan_releases(PlannedStep& step) {
  step.batch.releases.swap(pending_releases_);
  free_slots_.insert(free_slots_.end(), step.batch.releases.begin(), step.batch.releases.end());
}

void Scheduler::plan_decodes(PlannedStep& step) {
  num_growing_ = 0;
  draft_budget_.start({.max_batch_tokens = config_.max_batch_tokens,
                       .num_running = num_running(),
                       .prompts_wait = prompts_wait()});
  // running_ shrinks at its end when a sequence is retracted.
  constexpr size_t kAhead = 4;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (i + kAhead < running_.size()) prefetch(running_[i + kAhead], Sequence::kStepLines);
    Sequence& sequence = *running_[i];
    if (sequence.wants_decode()) {
      step.has_streams = true;
      // A draft at the limit of its rows would be inert.
      const int num_usable =
          std::min(sequence.num_drafts, sequence.row_limit() - sequence.min_rows() - 1);
      const int num_drafts = draft_budget_.take(num_usable);
      const int num_tokens = make_room(sequence, 1 + num_drafts, step.batch);
      draft_budget_.give_back(1 + num_drafts - std::max(1, num_tokens));
      if (num_tokens > 0) emit_decode(sequence, num_tokens, step);
    }
    if (sequence.row_limit() > sequence.num_row_capacity) ++num_growing_;
  }
  FATHOM_CHECK(step_tokens_left_ >= 0, "more running sequences than tokens in a step");
}

bool Scheduler::prompts_wait() const {
  return !waiting_.empty() || std::any_of(running_.begin(), running_.end(),
                                          [](const Sequence* s) { return s->in_prefill(); });
}

void Scheduler::emit_decode(Sequence& sequence, int num_tokens, PlannedStep& step) {
  sequence.num_drafts = num_drafts_to_propose(sequence, sequence.min_rows() + 1);
  if (cost_) step.work.add_decode(config_.slice_work(num_tokens, sequence.max_rows()));
  step.batch.slices.push_back(
      {.slot = sequence.slot,
       .num_tokens = num_tokens,
       .outputs = num_tokens == 1 ? core::Outputs::kLast : core::Outputs::kAll,
       .wants_mask = sequence.wants_mask(sequence.max_rows() + num_tokens),
       .num_drafts_to_propose = sequence.num_drafts});
  step.slices.push_back(
      {.sequence = &sequence, .num_tokens = num_tokens, .admission = sequence.num_admissions});
  ++sequence.min_advance;
  sequence.max_advance += num_tokens;
  step_tokens_left_ -= num_tokens;
}

int Scheduler::make_room(Sequence& sequence, int num_tokens, core::Batch& batch) {
  const auto provide = [&](int num_more) {
    const int rows = std::min(sequence.row_limit(),
                              sequence.num_computed_rows + sequence.max_advance + num_more);
    return blocks_.provide(sequence, rows, batch);
  };
  // Nobody waits or is retracted for drafts.
  if (num_tokens > 1 && provide(num_tokens) == KvBlocks::Provided::kReady) return num_tokens;
  while (true) {
    const KvBlocks::Provided provided = provide(1);
    if (provided == KvBlocks::Provided::kReady) return 1;
    if (provided == KvBlocks::Provided::kWait) return 0;
    FATHOM_CHECK(running_.size() > 1,
                 "one sequence of " << sequence.max_rows() << " rows and more exceeds the pool");
    Sequence& victim = *running_.back();
    retract(victim);
    if (&victim == &sequence) return 0;
  }
}

void Scheduler::share_out_prefill(PlannedStep& step) {
  chunks_.clear();
  publishing_.clear();
  PrefillBudget::Step limits{.num_tokens =
                                 std::min(step_tokens_left_, config_.chunked_prefill_size)};
  if (cost_ && step.has_streams) {
    limits.cost = &*cost_;
    limits.seconds = seconds_for_chunks(step.work);
    // A first look at what prompts cost.
    if (!cost_->knows_prompts())
      limits.num_tokens = std::min(limits.num_tokens, blocks_.block_tokens());
  }
  prefill_budget_.start(limits);
  for (Sequence* const sequence : running_) {
    if (sequence->num_computed_rows >= sequence->num_prefill_tokens) continue;
    publishing_.push_back(sequence);
    if (sequence->in_prefill()) start_chunk(*sequence, false);
  }
}

// Where decodes alone fill the bound, prompts still get a third of the step.
double Scheduler::seconds_for_chunks(const StepWork& work) const {
  const double anyway = cost_->decode_seconds(work) + cost_->prompt_start_seconds();
  const double planned = planned_part(cost_->error()) * config_.max_step_seconds;
  return std::max(planned - anyway, anyway / 2);
}

void Scheduler::start_chunk(Sequence& sequence, bool is_admitted) {
  chunks_.push_back(
      {&sequence,
       prefill_budget_.take({.first_position = sequence.min_rows(),
                             .num_wanted = sequence.num_prefill_tokens - sequence.min_rows(),
                             .min_tokens = is_admitted ? blocks_.block_tokens() : 0,
                             .must_advance = is_admitted})});
}

void Scheduler::plan_admissions(int64_t step_id, PlannedStep& step) {
  while (!waiting_.empty() && !free_slots_.empty() && !prefill_budget_.is_spent() &&
         num_running() < config_.max_running_requests) {
    Sequence* const next = waiting_.next(num_plans_, publishing_);
    if (next == nullptr) return;
    if (next == blocked_ && step_id < blocked_until_step_ && !running_.empty() &&
        blocks_.num_available() <= blocked_at_available_)
      return;
    if (!admit(*next, step)) {
      blocked_until_step_ = blocked_ == next ? step_id + kBlockedRetrySteps : 0;
      return;
    }
    start_chunk(*next, true);
    publishing_.push_back(next);
  }
}

bool Scheduler::admit(Sequence& sequence, PlannedStep& step) {
  const int num_tokens = sequence.num_known_tokens();
  const int rows = std::min(num_tokens + 1, sequence.row_limit());
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
  sequence.num_computed_rows = num_cached;
  sequence.min_advance = sequence.max_advance = sequence.num_drafts = 0;
  sequence.num_prefill_tokens = num_tokens;
  if (sequence.row_limit() > sequence.num_row_capacity) ++num_growing_;
  step.batch.admissions.push_back({.slot = sequence.slot,
                                   .num_cached_tokens = num_cached,
                                   .prompt = sequence.tokens,
                                   .num_generated_tokens = sequence.num_output_tokens(),
                                   .max_rows = sequence.row_limit(),
                                   .sampling = sequence.sampling,
                                   .stop_token_ids = sequence.stop_token_ids,
                                   .seed = sequence.seed});
  return true;
}

void Scheduler::emit_chunks(PlannedStep& step) {
  for (Chunk& chunk : chunks_) {
    prefill_budget_.take_more(chunk.share);
    if (chunk.share.num_tokens > 0) emit_chunk(*chunk.sequence, chunk.share.num_tokens, step);
  }
  step.is_cut = prefill_budget_.cut_by_time();
}

void Scheduler::emit_chunk(Sequence& sequence, int num_tokens, PlannedStep& step) {
  const int begin = sequence.min_rows(), end = begin + num_tokens;
  if (cost_) step.work.add_prompt(config_.slice_work(num_tokens, begin));
  const bool ends_prefill = end == sequence.num_prefill_tokens;
  const bool samples = ends_prefill && sequence.sampling.max_new_tokens > 0;
  const auto first = sequence.tokens.begin();
  if (samples) sequence.num_drafts = num_drafts_to_propose(sequence, end);
  step.batch.slices.push_back({.slot = sequence.slot,
                               .num_tokens = num_tokens,
                               .tokens = {first + begin, first + end},
                               .outputs = samples ? core::Outputs::kLast : core::Outputs::kNone,
                               .wants_mask = samples && sequence.wants_mask(end),
                               .num_drafts_to_propose = sequence.num_drafts});
  step.slices.push_back({.sequence = &sequence,
                         .first_position = begin,
                         .num_tokens = num_tokens,
                         .min_advance = num_tokens,
                         .admission = sequence.num_admissions,
                         .ends_prefill = ends_prefill});
  stats_.num_prefill_tokens += num_tokens;
  sequence.min_advance += num_tokens;
  sequence.max_advance += num_tokens;
}

// Drafts are for the slice after the one that leaves `num_rows` rows or more: none if that is inert.
int Scheduler::num_drafts_to_propose(const Sequence& sequence, int num_rows) const {
  return std::clamp(sequence.row_limit() - num_rows - 1, 0, num_drafts_);
}

void Scheduler::rows_computed(const PlannedSlice& slice, int num_rows) {
  Sequence& sequence = *slice.sequence;
  if (sequence.slot < 0 || sequence.num_admissions != slice.admission) return;
  FATHOM_CHECK(num_rows >= slice.min_advance && num_rows <= slice.num_tokens,
               "a slice of " << slice.num_tokens << " tokens added " << num_rows
                             << " rows, at least " << slice.min_advance << " wanted");
  sequence.num_computed_rows += num_rows;
  sequence.min_advance -= slice.min_advance;
  sequence.max_advance -= slice.num_tokens;
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
  stats.step_cost_error = cost_ ? cost_->error() : 0;
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
    if (sequence->ended || sequence->min_advance < 0 ||
        sequence->max_advance < sequence->min_advance ||
        sequence->min_rows() > sequence->row_limit())
      return "request " + std::to_string(sequence->id) + " runs with " +
             std::to_string(sequence->num_computed_rows) + " rows computed, " +
             std::to_string(sequence->min_advance) + " to " +
             std::to_string(sequence->max_advance) + " under way and at most " +
             std::to_string(sequence->row_limit());
  if (!std::is_sorted(running_.begin(), running_.end(), ranks_before))
    return "running sequences are not in the order of their rank";
  return "";
}

}  // namespace fathom::sched
