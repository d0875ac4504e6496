#include "sched/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace fathom::sched {

Scheduler::Scheduler(const SchedulerConfig& config) : config_(config) {
  FATHOM_CHECK(config.chunked_prefill_size >= 1 && config.max_running_requests >= 1,
               "chunks of " << config.chunked_prefill_size << ", " << config.max_running_requests
                            << " running requests");
  for (const KvGroupConfig& group : config.kv_groups)
    groups_.push_back(
        {std::make_unique<cache::BlockPool>(cache::BlockPoolConfig{.num_blocks = group.num_blocks}),
         group.block_tokens});
  for (int32_t slot = config.num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

void Scheduler::enqueue(SequencePtr sequence) {
  const auto later = std::find_if(waiting_.begin(), waiting_.end(), [&](const SequencePtr& other) {
    return other->arrival > sequence->arrival;
  });
  waiting_.insert(later, std::move(sequence));
}

PlannedStep Scheduler::plan(int64_t step_id) {
  PlannedStep step;
  step.batch.step_id = step_id;
  step_tokens_left_ = config_.max_batch_tokens;
  retracted_in_this_plan_ = false;
  plan_decodes(step);
  prefill_tokens_left_ = std::min(step_tokens_left_, config_.chunked_prefill_size);
  plan_prefills(step);
  // After a retraction there is no room, and its sequence may still get a token from a step in flight.
  if (!retracted_in_this_plan_) plan_admissions(step);
  // Released slots have no slice in this step; they can be admitted to from the next one on.
  step.batch.releases = std::move(pending_releases_);
  pending_releases_.clear();
  free_slots_.insert(free_slots_.end(), step.batch.releases.begin(), step.batch.releases.end());
  return step;
}

void Scheduler::plan_decodes(PlannedStep& step) {
  // running_ shrinks at its end when a sequence is retracted.
  for (size_t i = 0; i < running_.size() && step_tokens_left_ > 0; ++i) {
    const SequencePtr sequence = running_[i];
    if (!sequence->wants_decode()) continue;
    if (provide_blocks(*sequence, sequence->num_rows + 1, step.batch) != Blocks::kReady) continue;
    step.batch.slices.push_back({.slot = sequence->slot});
    step.slices.push_back({.sequence = sequence, .first_position = sequence->num_rows});
    ++sequence->num_rows;
    ++sequence->num_planned_outputs;
    --step_tokens_left_;
  }
}

void Scheduler::plan_prefills(PlannedStep& step) {
  for (const SequencePtr& sequence : running_) {
    if (prefill_tokens_left_ == 0) return;
    if (sequence->in_prefill()) plan_chunk(sequence, step);
  }
}

void Scheduler::plan_admissions(PlannedStep& step) {
  while (!waiting_.empty() && !free_slots_.empty() && prefill_tokens_left_ > 0 &&
         num_running() < config_.max_running_requests) {
    const SequencePtr sequence = waiting_.front();
    const int num_tokens = sequence->num_known_tokens();
    sequence->slot = free_slots_.back();
    sequence->leases.resize(groups_.size());
    if (!lease_blocks(*sequence, std::min(num_tokens + 1, sequence->max_rows()), step.batch)) {
      sequence->slot = -1;
      return;
    }
    free_slots_.pop_back();
    waiting_.pop_front();
    running_.push_back(sequence);
    sequence->num_rows = 0;
    sequence->num_prefill_tokens = num_tokens;
    sequence->num_planned_outputs = sequence->num_output_tokens();

    core::SlotAdmission admission{.slot = sequence->slot,
                                  .prompt = sequence->tokens,
                                  .num_generated_tokens = sequence->num_planned_outputs,
                                  .sampling = sequence->sampling,
                                  .stop_token_ids = sequence->stop_token_ids,
                                  .seed = sequence->seed};
    step.batch.admissions.push_back(std::move(admission));
    plan_chunk(sequence, step);
  }
}

void Scheduler::plan_chunk(const SequencePtr& sequence, PlannedStep& step) {
  const int begin = sequence->num_rows;
  const int num_tokens = std::min(prefill_tokens_left_, sequence->num_prefill_tokens - begin);
  const bool ends_prefill = begin + num_tokens == sequence->num_prefill_tokens;
  const bool samples = ends_prefill && sequence->sampling.max_new_tokens > 0;

  core::SequenceSlice slice{.slot = sequence->slot,
                            .num_tokens = num_tokens,
                            .outputs = samples ? core::Outputs::kLast : core::Outputs::kNone};
  slice.tokens.assign(sequence->tokens.begin() + begin,
                      sequence->tokens.begin() + begin + num_tokens);
  step.batch.slices.push_back(std::move(slice));
  step.slices.push_back(
      {.sequence = sequence, .first_position = begin, .ends_prefill = ends_prefill});
  sequence->num_rows += num_tokens;
  sequence->num_planned_outputs += samples ? 1 : 0;
  prefill_tokens_left_ -= num_tokens;
}

Scheduler::Blocks Scheduler::provide_blocks(Sequence& sequence, int rows, core::Batch& batch) {
  while (!lease_blocks(sequence, rows, batch)) {
    if (any_fenced()) return Blocks::kWait;
    const SequencePtr victim = running_.back();
    FATHOM_CHECK(running_.size() > 1, "one sequence of " << rows << " rows exceeds the pool");
    retract(victim);
    if (victim.get() == &sequence) return Blocks::kRetracted;
  }
  return Blocks::kReady;
}

bool Scheduler::lease_blocks(Sequence& sequence, int rows, core::Batch& batch) {
  std::vector<cache::BlockPool::Lease> extra(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int wanted = (rows + groups_[i].block_tokens - 1) / groups_[i].block_tokens;
    const int missing = wanted - static_cast<int>(sequence.leases[i].ids().size());
    if (missing <= 0) continue;
    Result<cache::BlockPool::Lease> lease = groups_[i].pool->lease(missing);
    if (!lease) return false;
    extra[i] = std::move(*lease);
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (extra[i].ids().empty()) continue;
    batch.block_appends.push_back(
        {.slot = sequence.slot, .kv_group = static_cast<int32_t>(i), .block_ids = extra[i].ids()});
    sequence.leases[i].merge(std::move(extra[i]));
  }
  return true;
}

bool Scheduler::any_fenced() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const KvGroup& group) { return group.pool->num_fenced() > 0; });
}

void Scheduler::retract(const SequencePtr& sequence) {
  running_.pop_back();
  release_resources(*sequence);
  enqueue(sequence);
  retracted_in_this_plan_ = true;
  ++sequence->num_retractions;
  ++num_retractions_;
}

void Scheduler::release_resources(Sequence& sequence) {
  pending_releases_.push_back(sequence.slot);
  sequence.slot = -1;
  sequence.leases.clear();
}

void Scheduler::remove(Sequence& sequence) {
  const auto is_it = [&](const SequencePtr& other) { return other.get() == &sequence; };
  if (sequence.slot >= 0) {
    release_resources(sequence);
    running_.erase(std::find_if(running_.begin(), running_.end(), is_it));
  } else {
    waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), is_it));
  }
}

void Scheduler::step_submitted(int64_t step_id) {
  for (KvGroup& group : groups_) group.pool->step_submitted(step_id);
}

void Scheduler::step_done(int64_t step_id) {
  for (KvGroup& group : groups_) group.pool->step_done(step_id);
}

std::string Scheduler::check_integrity() const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (std::string problem = groups_[i].pool->check_integrity(); !problem.empty()) return problem;
    int num_leased = 0;
    for (const SequencePtr& sequence : running_) {
      const int num_blocks = static_cast<int>(sequence->leases[i].ids().size());
      if (num_blocks * groups_[i].block_tokens < sequence->num_rows)
        return "slot " + std::to_string(sequence->slot) + " has more rows than its blocks hold";
      num_leased += num_blocks;
    }
    if (num_leased != groups_[i].pool->num_owned())
      return std::to_string(groups_[i].pool->num_owned()) + " blocks owned, " +
             std::to_string(num_leased) + " leased by running sequences";
  }
  if (num_running() + num_free_slots() + static_cast<int>(pending_releases_.size()) !=
      config_.num_slots)
    return std::to_string(config_.num_slots) + " slots, but " + std::to_string(num_running()) +
           " running, " + std::to_string(num_free_slots()) + " free, " +
           std::to_string(pending_releases_.size()) + " to release";
  const auto by_arrival = [](const SequencePtr& a, const SequencePtr& b) {
    return a->arrival < b->arrival;
  };
  if (!std::is_sorted(running_.begin(), running_.end(), by_arrival) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), by_arrival))
    return "sequences are not in the order of arrival";
  return "";
}

}  // namespace fathom::sched
