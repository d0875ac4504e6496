#pragma once
// A batch of equal sequences with random prompts that runs straight on a runner, step by step and timed:
// what a bench measures when nothing may schedule or share.
//
//   StaticBatch batch(runner, {.batch_size = 8, .input_len = 1024, .output_len = 16});
//   double prefill_seconds = batch.prefill();
//   while (!batch.done()) { StaticStep step = batch.decode();  ... }        // output_len - 1 times
//
// As an engine does, it submits the next step while one computes, if `overlap` is set and no sequence can end in the
// one that computes. A step then takes from the end of the one before to its own.
//
// With drafts every step asks for as many and verifies those of the step before, so sequences get several tokens
// in a step and reach their length at different times.
// Sequences are dealt out to the runner's lanes in turn. Takes their slots from the first on and gives them back when
// it is destroyed: one StaticBatch at a time.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "core/request.h"
#include "engine/speculation.h"
#include "runner/runner.h"

namespace fathom::apps {

struct StaticBatchShape {
  int batch_size = 1, input_len = 1, output_len = 1;
  uint64_t seed = 1;   // of the prompts
  int num_drafts = 0;  // of a sequence in every step, at most what the runner's drafter has
  bool overlap = true;

  // Sequences of the lane that has most.
  int lane_sequences(int num_lanes) const { return (batch_size + num_lanes - 1) / num_lanes; }
  // Rows of the cache that each lane needs, in whole blocks of 64.
  int64_t cache_tokens(int num_lanes) const;
};

// What a step of the whole batch took and brought.
struct StaticStep {
  double seconds = 0;
  int num_sequences = 0;  // that had not reached their length
  int64_t num_tokens = 0;
};

// Throws StartupError that names the flag to change.
void check_fits(const StaticBatchShape& shape, const runner::RunnerInfo& info);

// Token ids of a prompt that shares nothing with those of other numbers or seeds.
std::vector<int32_t> random_prompt(uint64_t seed, int number, int length, int vocab_size);

class StaticBatch {
 public:
  StaticBatch(runner::Runner& runner, const StaticBatchShape& shape);
  ~StaticBatch();
  StaticBatch(const StaticBatch&) = delete;
  StaticBatch& operator=(const StaticBatch&) = delete;

  // All prompts, in as many steps as the runner's max_batch_tokens asks for; ends with one token each.
  double prefill();
  // One more token for each sequence that wants one, and its accepted drafts.
  StaticStep decode();
  bool done() const;  // every sequence has output_len tokens
  core::SpeculationCounts speculation() const { return speculation_.counts(); }

 private:
  struct Sequence {
    std::vector<int32_t> prompt;
    int num_tokens = 0;   // generated
    int num_drafts = 0;   // that its slot has behind the steps submitted
    int num_awaited = 0;  // tokens that these may still bring at most
  };

  void admit(core::Batch& batch) const;
  int32_t slot_of(int sequence) const;
  Sequence& sequence_in(int32_t slot);
  // Tokens that a sequence may still get.
  int num_wanted(const Sequence& sequence) const { return shape_.output_len - sequence.num_tokens; }
  int num_drafts_to_ask(int num_wanted_after) const;
  // Every sequence that is not done wants a whole step's tokens behind what is awaited.
  bool can_plan_ahead() const;
  void submit(const core::Batch& batch);
  void submit_decode();
  StaticStep wait();
  void take(const core::SliceResult& slice, StaticStep& step);

  runner::Runner& runner_;
  StaticBatchShape shape_;
  std::vector<Sequence> sequences_;
  engine::RunningSpeculation speculation_;
  Stopwatch step_watch_;  // since the oldest step in flight was the next to be computed
};

}  // namespace fathom::apps
