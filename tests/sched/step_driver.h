#pragma once
// Runs a scheduler without a runner: every step is done before the next is planned, and the tokens sampled are
// always 1. Checks integrity after each step.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sched/scheduler.h"

namespace fathom::sched::testing {

struct NewSequence {
  std::vector<int32_t> prompt{};
  int max_new_tokens = 4;
  int priority = 0;
  std::string salt{};
  int64_t fan_out = 0;
  uint64_t owner = 0;
};

// Tokens of their own: no two texts share a block.
inline std::vector<int32_t> text(int count, int32_t author) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(1000 * author + i);
  return tokens;
}

class StepDriver {
 public:
  // checks_every: steps between two checks of integrity, which read every block.
  explicit StepDriver(const SchedulerConfig& config, int checks_every = 1)
      : scheduler_(config), checks_every_(checks_every) {}
  ~StepDriver() {
    for (const auto& sequence : sequences_)
      if (!sequence->ended) scheduler_.remove(*sequence, Scheduler::Rows::kValid);
  }

  Sequence& add(NewSequence wanted) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = sequence->arrival = static_cast<int64_t>(sequences_.size());
    sequence->priority = wanted.priority;
    sequence->cache_salt = std::move(wanted.salt);
    sequence->fan_out = wanted.fan_out;
    sequence->owner = wanted.owner;
    sequence->num_prompt_tokens = static_cast<int>(wanted.prompt.size());
    sequence->tokens = std::move(wanted.prompt);
    sequence->sampling.max_new_tokens = wanted.max_new_tokens;
    sequences_.push_back(std::move(sequence));
    scheduler_.enqueue(*sequences_.back());
    return *sequences_.back();
  }

  // The step that was planned, its results committed.
  const PlannedStep& step() {
    scheduler_.plan(next_step_id_, step_);
    if (step_.batch.empty()) return step_;
    scheduler_.step_submitted(next_step_id_);
    scheduler_.step_done(next_step_id_++);
    for (size_t i = 0; i < step_.slices.size(); ++i) commit(step_.slices[i], step_.batch.slices[i]);
    if (next_step_id_ % checks_every_ == 0) {
      EXPECT_EQ(scheduler_.check_integrity(), "") << "after step " << next_step_id_ - 1;
    }
    return step_;
  }
  void run() {
    for (int i = 0; scheduler_.has_work() && i < 100'000; ++i) step();
    EXPECT_FALSE(scheduler_.has_work());
  }
  void end(Sequence& sequence, Scheduler::Rows rows = Scheduler::Rows::kValid) {
    scheduler_.remove(sequence, rows);
    sequence.ended = true;
  }

  // Query tokens that the last step has for a sequence.
  int tokens_of(const Sequence& sequence) const {
    for (const PlannedSlice& slice : step_.slices)
      if (slice.sequence == &sequence) return slice.num_tokens;
    return 0;
  }
  // Of the drafts that a slice verifies, from now on.
  void accept(int num_drafts) { num_accepted_ = num_drafts; }
  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const std::vector<core::RequestId>& order_of_admission() const { return admitted_; }
  int64_t num_steps() const { return next_step_id_; }

 private:
  void commit(const PlannedSlice& planned, const core::SequenceSlice& slice) {
    Sequence& sequence = *planned.sequence;
    if (planned.first_position == sequence.num_computed_rows && sequence.num_output_tokens() == 0 &&
        std::find(admitted_.begin(), admitted_.end(), sequence.id) == admitted_.end())
      admitted_.push_back(sequence.id);
    // Drafts: as many are accepted as the test says, of those that its rows leave room for.
    const bool is_verify = slice.kind() == core::SliceKind::kVerify;
    const int num_accepted = is_verify ? std::min(num_accepted_, slice.num_tokens - 1) : 0;
    const int num_tokens = slice.outputs == core::Outputs::kNone ? 0 : 1 + num_accepted;
    sequence.tokens.insert(sequence.tokens.end(), static_cast<size_t>(num_tokens), 1);
    scheduler_.rows_computed(planned, is_verify ? num_tokens : slice.num_tokens);
    if (num_tokens == 0) return;
    if (sequence.num_output_tokens() == sequence.sampling.max_new_tokens) end(sequence);
  }

  Scheduler scheduler_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  PlannedStep step_;
  std::vector<core::RequestId> admitted_;
  int64_t next_step_id_ = 0;
  int num_accepted_ = 0;
  int checks_every_;
};

}  // namespace fathom::sched::testing
