#pragma once
// StepLoop: requests in, tokens out, over one runner, in the caller's thread. `generate` and `eval` run on it
// directly, ServingEngine runs it on a thread of its own.
//
//   StepLoop loop(runner, {.eos_token_ids = config.eos_token_ids});
//   if (Status added = loop.add({.id = 1, .prompt = ids, .sampling = params}); !added) ...
//   StepUpdates updates;
//   while (loop.step(updates)) { hand_on(std::move(updates)); updates = {}; }
//   hand_on(std::move(updates));
//
// With overlap a step is submitted before the tokens of the one before are known: the host's work hides
// behind the device's, and what a step computes for a request that the step before ended is dropped.
// With speculation a step may yield several tokens of a request; its output is the same.
// Every request that add() accepted gets exactly one update with `end`, its last. OutputCollector turns
// updates into callbacks and whole outputs.
// Failpoint "step_loop.behind_end": tokens behind an end are given out, a fault that a test must notice.
// One thread uses a loop; add(), cancel() and stop() are for between steps. The runner outlives the loop,
// serves one at a time, and is handed back with no step in flight and all slots free.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/request.h"
#include "engine/draft_depth.h"
#include "engine/late_masks.h"
#include "engine/request_state.h"
#include "engine/speculation.h"
#include "engine/updates.h"
#include "runner/runner.h"
#include "sched/scheduler.h"

namespace fathom::engine {

struct StepLoopConfig {
  // Prompt tokens of one step, cut to the runner's max_batch_tokens.
  int chunked_prefill_size = 2048;
  // Of a step in which requests decode: chunks of prompts are cut to what fits. 0 = no bound.
  double max_step_seconds = 0;
  int max_running_requests = 0;  // 0 = as many as the runner has slots
  sched::SchedulePolicy schedule_policy = sched::SchedulePolicy::kLpm;
  bool radix_cache = true;
  cache::BlockListener* block_listener = nullptr;  // of the lanes' prefix caches; outlives the loop
  bool overlap = true;
  SpeculationConfig speculation{};
  std::vector<int32_t> eos_token_ids{};
  uint64_t random_seed = 0;  // of requests without a seed: theirs are drawn from this and their id
  // Computes the masks of constrained requests; none = step() does. It runs every job before it ends, and
  // outlives the loop.
  MaskExecutor mask_executor{};
  const Clock* clock = &system_clock();  // outlives the loop
};

// What became of StepLoopConfig::max_step_seconds. Of steps in which requests decoded; without a bound all is 0.
struct StepTimeStats {
  double bound_seconds = 0;
  int64_t num_steps = 0;  // committed
  int64_t num_cut = 0;    // whose chunks the bound made shorter
  int64_t num_over = 0;   // that took longer than the bound
  double last_seconds = 0, last_predicted_seconds = 0;
  double error = 0;  // mean of |measured / predicted - 1| of all steps, lately
};

// Requests that their constraint ended, by its errors (core/request.h).
struct GrammarFailures {
  int64_t num_dead_ends = 0, num_refusals = 0, num_without_memory = 0;
  void count(std::string_view error) {
    if (error == core::kGrammarDeadEnd) ++num_dead_ends;
    if (error == core::kGrammarRefusal) ++num_refusals;
    if (error == core::kNoMemory) ++num_without_memory;
  }
};

struct StepLoopStats {
  int64_t num_steps = 0;            // submitted
  int64_t num_committed_steps = 0;  // and their results taken
  // Of requests admitted, each once: its prompt, and how much of it the prefix cache had.
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0;
  int64_t num_prefill_tokens = 0;  // computed, those of retracted sequences again
  int64_t num_output_tokens = 0;
  int64_t num_wasted_tokens = 0;  // sampled behind the end of their request
  // Of requests that had not ended, tokens behind an end left out; a step verifies one slice per request.
  int64_t num_verify_slices = 0;
  int64_t num_drafts_proposed = 0, num_drafts_verified = 0, num_drafts_accepted = 0;
  int64_t num_retractions = 0, num_evicted_blocks = 0;
  int64_t num_expired = 0;  // requests that expire() ended
  GrammarFailures grammar_failures{};
  double wall_seconds = 0;
  StepTimeStats step_time{};
  double last_plan_us = 0, last_commit_us = 0;  // the host's time for the last step of each kind
  // Of the step committed last, as core::StepResult has them; negative = not measured.
  double last_forward_seconds = -1, last_sampling_seconds = -1, last_mask_wait_seconds = 0;
};

class StepLoop {
 public:
  // Throws StartupError when a setting is out of range.
  StepLoop(runner::Runner& runner, StepLoopConfig config);
  // Hands the runner back; requests that have not finished are dropped without an update.
  ~StepLoop();
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // What is wrong with a request, if anything. Thread-safe: depends on nothing that changes.
  Status check(const core::Request& request) const;
  // Queues a request, or says what is wrong with it. Ids of requests that have not ended are distinct. The
  // tag comes back in every update of the request. Its times count from `arrived`, by default from now.
  Status add(core::Request request, uint32_t client_tag = 0,
             std::optional<Clock::time_point> arrived = {});
  // The request ends with kCancelled (cancel) or kStop (stop: a stop string was found in its text) at the
  // next step() unless it has ended; unknown ids are ignored. Slot and blocks are free within two steps.
  void cancel(core::RequestId id) { ends_wanted_.push_back({id, core::FinishReason::kCancelled}); }
  void stop(core::RequestId id) { ends_wanted_.push_back({id, core::FinishReason::kStop}); }
  void cancel_all();
  // The request ends with kFailed and this error at the next step() unless it was ever admitted.
  void expire(core::RequestId id, std::string error) {
    ends_wanted_.push_back({id, core::FinishReason::kFailed, std::move(error)});
  }
  // Whether it runs only while nobody else needs its slot or blocks; unknown ids are ignored. It is the same request
  // afterwards, computed again from what the cache has kept.
  void set_gives_way(core::RequestId id, bool gives_way);
  // Forgets the prefix cache. Error kResourceEmpty while requests run or wait; those that wait in a pause do not count.
  Status flush_cache();

  // From the next step() on nothing is admitted or computed until resume(); steps in flight are committed, requests are
  // taken and may end. With kRetract those that run give their slots and rows back, and are computed again.
  void pause(sched::Scheduler::Pause pause) { scheduler_.pause(pause); }
  void resume() { scheduler_.resume(); }
  bool is_paused() const { return scheduler_.is_paused(); }

  // Submits the next step, commits the oldest one when that is due and appends what came of it. False =
  // idle: every request has ended, or the pause has come to a halt.
  bool step(StepUpdates& updates);

  // How many drafts to ask for after each token from the next step on. REQUIRES: in [0, max_drafts()], and the
  // loop does not choose itself (SpeculationConfig::adaptive).
  void set_num_drafts(int num_drafts);
  int num_drafts() const { return scheduler_.num_drafts(); }  // asked for now
  int max_drafts() const { return max_drafts_; }              // 0 = no speculation

  int num_waiting() const { return scheduler_.num_waiting(); }
  int num_running() const { return scheduler_.num_running(); }
  // Accepted, not ended and never admitted.
  bool is_queued(core::RequestId id) const;
  int max_running_requests() const { return max_running_requests_; }
  int num_live() const { return static_cast<int>(live_.size()); }  // accepted and not ended
  StepLoopStats stats() const;
  const sched::Scheduler& scheduler() const { return scheduler_; }
  // Empty = pools, slots and sequences agree; else what is wrong. For tests after every step, and for the
  // metric in production now and then, where nothing waits that long or in parts (sched/scheduler.h).
  std::string check_integrity(std::optional<uint64_t> part = {}) const;

 private:
  struct EndWanted {
    core::RequestId id;
    core::FinishReason reason;
    std::string error{};  // kFailed: of a request that is still in the queue
  };
  // A request that ended while steps that name it were in flight.
  struct Ended {
    int64_t last_step_id;
    RequestPool::Owner state;
  };

  RequestPool::Owner make_state(core::Request request);
  void apply_ends(StepUpdates& updates);
  bool submit_next();
  void start_masks();
  core::StepResult wait_for_step();
  void commit_oldest(StepUpdates& updates);
  static void fetch_ahead(const sched::PlannedStep& step, const core::StepResult& result,
                          size_t slice);
  void observe_time(const sched::PlannedStep& step, const core::StepResult& result);
  void observe_drafts(const core::Batch& batch, const core::StepResult& result);
  void commit_slice(const sched::PlannedSlice& planned, core::SliceResult& result,
                    StepUpdates& updates);
  static void take_prompt_logprobs(RequestState& state, int first_position,
                                   core::SliceResult& result);
  static void give_out_prompt_logprobs(RequestState& state, RequestUpdate& update);
  // How many of the tokens belong to the request, and why it ends with the last of them, if it does.
  struct Cut {
    size_t num_tokens = 0;
    core::FinishReason reason = core::FinishReason::kNone;
    int32_t stop_token = -1;
  };
  Cut cut_at_end(const RequestState& state, const std::vector<core::SampledToken>& tokens) const;
  void take_drafts(RequestState& state, core::SliceResult& result, const Cut& cut);
  void give_out(RequestState& state, std::vector<core::SampledToken>& tokens, size_t num_tokens,
                StepUpdates& updates);
  using Rows = sched::Scheduler::Rows;
  void finish(RequestState& state, RequestEnd end, StepUpdates& updates, Rows rows = Rows::kValid);

  runner::Runner& runner_;
  StepLoopConfig config_;
  int max_running_requests_;
  int max_drafts_;
  std::optional<DraftDepth> draft_depth_;  // with SpeculationConfig::adaptive
  DraftOutcome draft_outcome_;             // of the step being committed
  sched::Scheduler scheduler_;
  LateMasks masks_;
  RequestPool states_;  // outlives its requests
  std::unordered_map<core::RequestId, RequestPool::Owner> live_;
  std::deque<Ended> ended_;
  std::vector<EndWanted> ends_wanted_;
  std::deque<sched::PlannedStep> in_flight_;
  std::vector<sched::PlannedStep> spare_steps_;  // keep their memory
  int64_t last_masked_step_id_ = -1;             // masks_ was told of the steps up to it
  int64_t next_arrival_ = 0, next_step_id_;
  // One reading for everything that is committed together.
  Clock::time_point commit_time_{};
  StepLoopStats stats_;
};

}  // namespace fathom::engine
