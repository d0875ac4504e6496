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
      lanes_({.num_lanes = config.num_lanes,
              .slots_per_lane = config.num_slots / config.num_lanes,
              .placement = config.placement,
              .kv_groups = config.kv_groups,
              .radix_cache = config.radix_cache,
              .listener = config.block_listener}),
      waiting_({.policy = config.policy,
                .turn_tokens = config.chunked_prefill_size,
                .most_running = config.max_running_requests},
               lanes_),
      num_drafts_(config.num_drafts),
      prefill_budget_(config.slice_work, lanes_.block_tokens(), config.num_lanes) {
  FATHOM_CHECK(
      config.chunked_prefill_size >= 1 && config.max_running_requests >= 1 &&
          config.max_running_requests <= std::min(config.num_slots, config.max_batch_tokens),
      "chunks of " << config.chunked_prefill_size << ", " << config.max_running_requests
                   << " running requests, " << config.num_slots << " slots, "
                   << config.max_batch_tokens << " tokens in a step");
  if (config.max_step_seconds > 0)
    cost_.emplace(config.slice_work(1, 0).linear, config.step_start_tokens);
}

void Scheduler::plan(int64_t step_id, PlannedStep& step) {
  step.clear();
  step.batch.step_id = step_id;
  ++num_plans_;  // a plan that comes to nothing is made again for the same step
  step_tokens_left_ = config_.max_batch_tokens;
  retracted_in_this_plan_ = false;
  if (is_paused()) {
    for (Lane& lane : lanes_)
      while (pause_ == Pause::kRetract && !lane.running.empty()) retract_last(lane);
    return plan_releases(step);
  }
  lanes_.start_plan();
  retract_by_failpoint();
  give_way();
  draft_budget_.start({.max_batch_tokens = config_.max_batch_tokens,
                       .num_running = num_running(),
                       .prompts_wait = prompts_wait()});
  for (Lane& lane : lanes_) plan_decodes(lane, step);
  FATHOM_CHECK(step_tokens_left_ >= 0, "more running sequences than tokens in a step");
  share_out_prefill(step);
  // After a retraction there is no room, and its sequence may still get a token from a step in flight.
  if (!retracted_in_this_plan_) plan_admissions(step_id, step);
  emit_chunks(step);
  if (cost_) predict(step);
  plan_releases(step);
}

// What the other lanes compute beside the slowest is learnt as a part of what its work costs.
void Scheduler::predict(PlannedStep& step) const {
  step.work = lanes_[0].work;
  step.predicted_seconds = cost_->seconds(step.work);
  for (const Lane& lane : lanes_) {
    const double seconds = cost_->seconds(lane.work);
    if (lane.work.num_chunks + lane.work.num_decodes == 0 || seconds < step.predicted_seconds)
      continue;
    step.work = lane.work;
    step.predicted_seconds = seconds;
  }
}

void Scheduler::retract_by_failpoint() {
  for (Lane& lane : lanes_) {
    if (lane.running.size() < 2) continue;
    if (failpoint("scheduler.retract")) retract_last(lane);
    return;
  }
}

void Scheduler::set_gives_way(Sequence& sequence, bool gives_way) {
  num_giving_way_ += static_cast<int>(gives_way) - static_cast<int>(sequence.gives_way);
  sequence.gives_way = gives_way;
}

// Whoever has to goes back to the queue where another waits for a slot or, of those with gives_way, for blocks. Before
// decodes are planned: what a retracted sequence may still get is from the step in flight.
void Scheduler::give_way() {
  if ((!waiting_.has_crowd() && num_giving_way_ == 0) || lanes_.has_releases()) return;
  const Sequence* const to = waiting_.first_unyielding(num_plans_);
  if (to == nullptr) return;
  if (Sequence* const victim = who_gives_way(*to)) retract(*victim);
}

// The last by rank of those with gives_way; without any the last of a body that has more than half of the slots, if a
// slot is what is missing.
Sequence* Scheduler::who_gives_way(const Sequence& to) {
  const bool needs_slot = !has_room_to_run();
  if (!needs_slot && blocked_ != &to) return nullptr;
  Sequence* last = nullptr;
  for (const Lane& lane : lanes_)
    for (Sequence* const sequence : lane.running) {
      const bool has_to = sequence->gives_way || (needs_slot && sequence->priority <= to.priority &&
                                                  waiting_.is_of_crowd(*sequence));
      if (!has_to || (last != nullptr && last->gives_way && !sequence->gives_way)) continue;
      if (last == nullptr || last->gives_way != sequence->gives_way || ranks_before(last, sequence))
        last = sequence;
    }
  return last;
}

void Scheduler::step_submitted(int64_t step_id) {
  for (Lane& lane : lanes_) lane.blocks.step_submitted(step_id);
}

void Scheduler::step_done(int64_t step_id) {
  for (Lane& lane : lanes_) lane.blocks.step_done(step_id);
}

void Scheduler::clear_cache() {
  for (Lane& lane : lanes_) lane.blocks.clear();
}

// Released slots have no slice in this step; they can be admitted to from the next one on.
void Scheduler::plan_releases(PlannedStep& step) {
  for (Lane& lane : lanes_) {
    std::vector<int32_t>& slots = lane.pending_releases;
    step.batch.releases.insert(step.batch.releases.end(), slots.begin(), slots.end());
    lane.free_slots.insert(lane.free_slots.end(), slots.begin(), slots.end());
    slots.clear();
  }
}

void Scheduler::plan_decodes(Lane& lane, PlannedStep& step) {
  std::vector<Sequence*>& running = lane.running;
  // It shrinks at its end when a sequence is retracted.
  constexpr size_t kAhead = 4;
  for (size_t i = 0; i < running.size(); ++i) {
    if (i + kAhead < running.size()) prefetch(running[i + kAhead], Sequence::kStepLines);
    Sequence& sequence = *running[i];
    if (sequence.wants_decode()) {
      step.has_streams = lane.has_streams = true;
      // A draft at the limit of its rows would be inert.
      const int num_usable =
          std::min(sequence.num_drafts, sequence.row_limit() - sequence.min_rows() - 1);
      const int num_drafts = draft_budget_.take(num_usable);
      const int num_tokens = make_room(lane, sequence, 1 + num_drafts, step.batch);
      draft_budget_.give_back(1 + num_drafts - std::max(1, num_tokens));
      if (num_tokens > 0) emit_decode(lane, sequence, num_tokens, step);
    }
    if (sequence.row_limit() > sequence.num_row_capacity) ++lane.num_growing;
  }
}

bool Scheduler::prompts_wait() const {
  const auto computes_prompts = [](const Lane& lane) {
    return std::any_of(lane.running.begin(), lane.running.end(),
                       [](const Sequence* s) { return s->in_prefill(); });
  };
  return !waiting_.empty() || std::any_of(lanes_.begin(), lanes_.end(), computes_prompts);
}

void Scheduler::emit_decode(Lane& lane, Sequence& sequence, int num_tokens, PlannedStep& step) {
  sequence.num_drafts = num_drafts_to_propose(sequence, sequence.min_rows() + 1);
  if (cost_) lane.work.add_decode(config_.slice_work(num_tokens, sequence.max_rows()));
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

int Scheduler::make_room(Lane& lane, Sequence& sequence, int num_tokens, core::Batch& batch) {
  const auto provide = [&](int num_more) {
    const int rows = std::min(sequence.row_limit(),
                              sequence.num_computed_rows + sequence.max_advance + num_more);
    return lane.blocks.provide(sequence, rows, batch);
  };
  // Nobody waits or is retracted for drafts.
  if (num_tokens > 1 && provide(num_tokens) == KvBlocks::Provided::kReady) return num_tokens;
  while (true) {
    const KvBlocks::Provided provided = provide(1);
    if (provided == KvBlocks::Provided::kReady) return 1;
    if (provided == KvBlocks::Provided::kWait) return 0;
    FATHOM_CHECK(lane.running.size() > 1,
                 "one sequence of " << sequence.max_rows() << " rows and more exceeds the pool");
    const Sequence* const victim = lane.running.back();
    retract_last(lane);
    if (victim == &sequence) return 0;
  }
}

void Scheduler::share_out_prefill(PlannedStep& step) {
  chunks_.clear();
  publishing_.clear();
  PrefillBudget::Step limits{.num_tokens =
                                 std::min(step_tokens_left_, config_.chunked_prefill_size)};
  const bool is_timed = cost_ && step.has_streams;
  if (is_timed) {
    limits.cost = &*cost_;
    // A first look at what prompts cost.
    if (!cost_->knows_prompts())
      limits.num_tokens = std::min(limits.num_tokens, lanes_.block_tokens());
  }
  prefill_budget_.start(limits);
  for (const Lane& lane : lanes_) {
    if (is_timed) prefill_budget_.set_lane_seconds(lane.number, seconds_for_chunks(lane.work));
    for (Sequence* const sequence : lane.running)
      if (sequence->num_computed_rows < sequence->num_prefill_tokens)
        publishing_.push_back(sequence);
  }
  if (lanes_.size() > 1) std::sort(publishing_.begin(), publishing_.end(), ranks_before);
  for (Sequence* const sequence : publishing_)
    if (sequence->in_prefill()) start_chunk(*sequence, false);
}

// Where decodes alone nearly fill the bound, prompts still get a third of the step, and as long as the decodes.
double Scheduler::seconds_for_chunks(const StepWork& work) const {
  const double decodes = cost_->decode_seconds(work), start = cost_->prompt_start_seconds();
  const double planned = planned_part(cost_->error()) * config_.max_step_seconds;
  return std::max({planned - decodes - start, (decodes + start) / 2, decodes - start});
}

void Scheduler::start_chunk(Sequence& sequence, bool is_admitted) {
  chunks_.push_back(
      {&sequence,
       prefill_budget_.take({.first_position = sequence.min_rows(),
                             .num_wanted = sequence.num_prefill_tokens - sequence.min_rows(),
                             .min_tokens = is_admitted ? lanes_.block_tokens() : 0,
                             .must_advance = is_admitted,
                             .lane = lanes_.number_of(sequence)})});
}

void Scheduler::plan_admissions(int64_t step_id, PlannedStep& step) {
  while (!waiting_.empty() && has_room_to_run() && !prefill_budget_.is_spent()) {
    Sequence* const next = waiting_.next(num_plans_, publishing_);
    if (next == nullptr) return;
    if (next == blocked_ && step_id < blocked_until_step_ && num_running() > 0 &&
        lanes_.num_available_blocks() <= blocked_at_available_)
      return;
    if (!admit(*next, step)) {
      if (blocked_ == next && waiting_.set_aside(*next)) {
        blocked_ = nullptr;
        continue;
      }
      blocked_until_step_ = blocked_ == next ? step_id + kBlockedRetrySteps : 0;
      return;
    }
    start_chunk(*next, true);
    publishing_.push_back(next);
  }
}

bool Scheduler::admit(Sequence& sequence, PlannedStep& step) {
  bool comes_later = false;
  for (const int lane : lanes_.places_for(sequence)) {
    if (prefill_budget_.is_spent(lane)) {
      comes_later = true;
      continue;
    }
    const Admitted admitted = admit_to(lanes_[lane], sequence, step);
    if (admitted == Admitted::kYes) return true;
    comes_later = comes_later || admitted == Admitted::kLater;
  }
  // Fenced blocks come with the next step: then it is worth trying at once.
  blocked_ = comes_later ? nullptr : &sequence;
  blocked_at_available_ = lanes_.num_available_blocks();
  return false;
}

Scheduler::Admitted Scheduler::admit_to(Lane& lane, Sequence& sequence, PlannedStep& step) {
  const int num_tokens = sequence.num_known_tokens();
  const int rows = std::min(num_tokens + 1, sequence.row_limit());
  sequence.slot = lane.free_slots.back();
  lane.blocks.pin_prefix(sequence, sequence.reads_cache ? num_tokens - 1 : 0);
  const int num_cached = sequence.num_row_capacity;
  // Every running sequence can have one more block before this one takes its own.
  const bool fits = lane.blocks.can_provide(sequence, rows, lane.num_growing);
  const size_t num_appends = step.batch.block_appends.size();
  for (size_t i = 0; num_cached > 0 && fits && i < config_.kv_groups.size(); ++i)
    step.batch.block_appends.push_back({.slot = sequence.slot,
                                        .kv_group = static_cast<int32_t>(i),
                                        .block_ids = sequence.pin.block_ids(static_cast<int>(i))});
  if (!fits || lane.blocks.provide(sequence, rows, step.batch) != KvBlocks::Provided::kReady) {
    step.batch.block_appends.resize(num_appends);
    lane.blocks.release(sequence);
    sequence.slot = -1;
    return fits ? Admitted::kLater : Admitted::kNoRoom;
  }
  lane.free_slots.pop_back();
  waiting_.admitted(sequence);
  blocked_ = nullptr;
  lane.running.insert(position_in(lane, sequence), &sequence);
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
  waiting_.owes(sequence, num_tokens - num_cached);
  lane.load += lane.load_of(sequence);
  if (sequence.row_limit() > sequence.num_row_capacity) ++lane.num_growing;
  step.batch.admissions.push_back({.slot = sequence.slot,
                                   .num_cached_tokens = num_cached,
                                   .prompt = sequence.tokens,
                                   .num_generated_tokens = sequence.num_output_tokens(),
                                   .max_rows = sequence.row_limit(),
                                   .sampling = sequence.sampling,
                                   .stop_token_ids = sequence.stop_token_ids,
                                   .seed = sequence.seed});
  return Admitted::kYes;
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
  if (cost_) lanes_.of(sequence).work.add_prompt(config_.slice_work(num_tokens, begin));
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
  waiting_.owes(sequence, sequence.num_prefill_tokens - end);
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
  if (sequence.num_computed_rows <= sequence.num_prefill_tokens)
    lanes_.of(sequence).blocks.publish(sequence);
}

void Scheduler::retract(Sequence& sequence) {
  Lane& lane = lanes_.of(sequence);
  lane.running.erase(position_in(lane, sequence));
  release_resources(sequence, Rows::kValid);
  ++sequence.num_retractions;
  ++stats_.num_retractions;
  retracted_in_this_plan_ = true;
  waiting_.add(sequence);
}

void Scheduler::release_resources(Sequence& sequence, Rows rows) {
  Lane& lane = lanes_.of(sequence);
  lane.load -= lane.load_of(sequence);
  waiting_.stopped_running(sequence);
  if (rows == Rows::kValid) lane.blocks.publish(sequence);
  lane.pending_releases.push_back(sequence.slot);
  sequence.slot = -1;
  lane.blocks.release(sequence);
}

void Scheduler::remove(Sequence& sequence, Rows rows) {
  set_gives_way(sequence, false);
  if (sequence.slot < 0) {
    waiting_.remove(sequence);
  } else {
    Lane& lane = lanes_.of(sequence);
    lane.running.erase(position_in(lane, sequence));
    release_resources(sequence, rows);
  }
  if (blocked_ == &sequence) blocked_ = nullptr;
  // Rows of its prompt that were published before it failed may hold what made it fail.
  if (rows == Rows::kInvalid) clear_cache();
}

std::vector<Sequence*>::iterator Scheduler::position_in(Lane& lane, const Sequence& sequence) {
  return std::lower_bound(lane.running.begin(), lane.running.end(), &sequence, ranks_before);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  for (const Lane& lane : lanes_) stats.num_evicted_blocks += lane.blocks.num_evicted_blocks();
  stats.step_cost_error = cost_ ? cost_->error() : 0;
  return stats;
}

std::string Scheduler::check_integrity(std::optional<uint64_t> part) const {
  if (std::string problem = lanes_.check_integrity(part); !problem.empty()) return problem;
  return waiting_.check_integrity();
}

}  // namespace fathom::sched
