#pragma once
// Scheduler: decides what the next step computes and who owns which slot and which blocks. The rules are in
// docs/contracts/scheduler.md.
//
//   Scheduler scheduler({.num_slots = 64, .max_batch_tokens = 8192, .kv_groups = {{.num_blocks = 1024}}});
//   scheduler.enqueue(sequence);
//   scheduler.plan(step_id, step);                 // may be empty: everything waits
//   if (!step.batch.empty()) { runner.submit(step.batch); scheduler.step_submitted(step_id); }
//   ...  scheduler.step_done(step_id);  for (slice : step.slices) scheduler.rows_computed(slice, num_rows);
//
// One step holds a decode of every sequence that can, then chunks of prompts. Admission takes the cached
// prefix and leases the blocks of all tokens known plus one, so a prefill never stops halfway. A decode that
// finds no block waits when fenced ones come and otherwise retracts the sequence that ranks last. The first
// one always gets its blocks, so every step makes progress.
// With drafts a decode verifies those that the step before proposed. How many it accepts comes out when it is
// committed, so a sequence has bounds meanwhile: blocks are leased for the upper one (sequence.h).
// There may be several lanes (lanes.h), which compute one step together: one queue for all, tokens and drafts of a step
// shared among all, and blocks, slots and retraction in each lane by itself. A sequence goes to a lane when it is
// admitted; one that was retracted may go to another.
// With max_step_seconds the chunks of a step in which sequences decode are cut to what fits that time, by a cost learnt
// from measured steps (step_cost.h): whoever measures tells step_measured().
// One thread uses it. Sequences belong to the caller (sequence.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/batch.h"
#include "sched/draft_budget.h"
#include "sched/kv_blocks.h"
#include "sched/lanes.h"
#include "sched/prefill_budget.h"
#include "sched/sequence.h"
#include "sched/step_cost.h"
#include "sched/waiting_queue.h"

namespace fathom::sched {

struct SchedulerConfig {
  int num_lanes = 1;
  int num_slots = 1;         // of all lanes, each of which has equally many
  int max_batch_tokens = 1;  // query tokens of one step, of all lanes together, as the next one
  std::vector<KvGroupConfig> kv_groups{};  // of each lane
  int chunked_prefill_size = 2048;         // prompt tokens of one step, >= 1
  int max_running_requests = 1;            // in [1, min(num_slots, max_batch_tokens)]
  SchedulePolicy policy = SchedulePolicy::kLpm;
  bool radix_cache = true;  // REQUIRES: all groups have the same block_tokens
  LanePlacement placement = LanePlacement::kPrefix;
  cache::BlockListener* block_listener = nullptr;  // of the lanes' prefix caches; outlives it
  int num_drafts = 0;  // that the drafter proposes after each token, until set_num_drafts()
  double max_step_seconds = 0;  // of a step in which sequences decode; 0 = no bound
  int step_start_tokens = core::kStepStartTokens;  // of the runner
  SliceWorkOf slice_work{};                        // REQUIRES with a bound: what slices compute
};

// What a slice of the batch was planned for; same order as Batch::slices.
struct PlannedSlice {
  Sequence* sequence = nullptr;
  // Of a prefill; the position of a decode is not known yet.
  int first_position = 0, num_tokens = 1;
  int min_advance = 1;  // rows it adds at least; at most num_tokens
  int admission = 0;    // Sequence::num_admissions when it was planned
  bool ends_prefill = false;
};

struct PlannedStep {
  core::Batch batch;
  std::vector<PlannedSlice> slices;
  std::vector<Sequence*> first_admissions;  // that left the queue for the first time
  // With SchedulerConfig::max_step_seconds, of the lane that is predicted to take longest.
  StepWork work{};
  double predicted_seconds = 0;  // 0 = nothing like it was measured
  bool has_streams = false;      // sequences decode, so the step is bounded
  bool is_cut = false;           // the bound made its chunks shorter
  void clear();                  // keeps the memory
};

struct SchedulerStats {
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0;  // of first admissions
  int64_t num_prefill_tokens = 0;
  int64_t num_retractions = 0, num_evicted_blocks = 0;
  double step_cost_error = 0;  // StepCost::error()
};

class Scheduler {
 public:
  // kInvalid: the sequence failed; what it computed is not to be used by others.
  enum class Rows { kValid, kInvalid };

  explicit Scheduler(const SchedulerConfig& config);

  void enqueue(Sequence& sequence) { waiting_.add(sequence); }
  // Of one that is enqueued: whether others go before it, and get its slot and blocks when they wait for some.
  void set_gives_way(Sequence& sequence, bool gives_way);
  // Fills `step`, whose former content is dropped.
  void plan(int64_t step_id, PlannedStep& step);
  // Ends a sequence, waiting or running: its valid blocks stay in the cache, the others go back (fenced while
  // steps are in flight), and its slot is released by the next step.
  void remove(Sequence& sequence, Rows rows);

  void step_submitted(int64_t step_id);
  void step_done(int64_t step_id);
  // For every slice of a step that is done and did not fail: it added num_rows rows. REQUIRES: the tokens it
  // yielded are appended to the sequence, up to its end.
  void rows_computed(const PlannedSlice& slice, int num_rows);

  // The runner's own time for a step that is done, > 0.
  void step_measured(const PlannedStep& step, double seconds) {
    if (cost_) cost_->observe(step.work, seconds);
  }

  // How many drafts to ask for after each token from the next plan on, in [0, what the drafter can].
  void set_num_drafts(int num_drafts) { num_drafts_ = num_drafts; }
  int num_drafts() const { return num_drafts_; }

  // Forgets every prefix that is not in use.
  void clear_cache();

  // Until resume() plans hold releases alone: nothing is admitted and nothing computed. With kRetract the next plan
  // retracts whatever runs.
  enum class Pause { kKeepRunning, kRetract };
  void pause(Pause pause) { pause_ = pause; }
  void resume() { pause_.reset(); }
  bool is_paused() const { return pause_.has_value(); }

  // Whether a plan may come to something.
  bool has_work() const {
    if (lanes_.has_releases()) return true;
    if (is_paused()) return pause_ == Pause::kRetract && num_running() > 0;
    return !waiting_.empty() || num_running() > 0;
  }
  int num_waiting() const { return waiting_.size(); }
  const WaitingQueue& waiting() const { return waiting_; }
  int num_running() const { return lanes_.num_running(); }
  int num_free_slots() const { return lanes_.num_free_slots(); }
  SchedulerStats stats() const;
  const Lanes& lanes() const { return lanes_; }
  KvUsage kv_usage() const { return lanes_.usage(); }  // of all lanes
  const cache::BlockPool& pool(int kv_group, int lane = 0) const {
    return lanes_[lane].blocks.pool(kv_group);
  }
  // Empty = pools, cache, slots and sequences agree; else what is wrong. O(blocks): tens of milliseconds where some ten
  // thousand are cached. part: of the cached ones some alone, in about a millisecond, other ones for each number.
  std::string check_integrity(std::optional<uint64_t> part = {}) const;

 private:
  struct Chunk {
    Sequence* sequence = nullptr;
    PrefillBudget::Chunk share{};
  };

  void retract_by_failpoint();
  void plan_decodes(Lane& lane, PlannedStep& step);
  bool prompts_wait() const;
  void emit_decode(Lane& lane, Sequence& sequence, int num_tokens, PlannedStep& step);
  // Query tokens that there is room for, at most num_tokens. 0: the sequence cannot decode in this step, and
  // may have been retracted.
  int make_room(Lane& lane, Sequence& sequence, int num_tokens, core::Batch& batch);
  void share_out_prefill(PlannedStep& step);
  // What chunks may take of a step with these decodes.
  double seconds_for_chunks(const StepWork& work) const;
  void plan_admissions(int64_t step_id, PlannedStep& step);
  // To the best lane that has room for it; false = none has.
  bool admit(Sequence& sequence, PlannedStep& step);
  enum class Admitted {
    kYes,
    kLater,
    kNoRoom
  };  // kLater: with the next step, when steps in flight are done
  Admitted admit_to(Lane& lane, Sequence& sequence, PlannedStep& step);
  void start_chunk(Sequence& sequence, bool is_admitted);
  void emit_chunks(PlannedStep& step);
  void emit_chunk(Sequence& sequence, int num_tokens, PlannedStep& step);
  int num_drafts_to_propose(const Sequence& sequence, int num_rows) const;
  void plan_releases(PlannedStep& step);
  void predict(PlannedStep& step) const;
  bool has_room_to_run() const {
    return num_free_slots() > 0 && num_running() < config_.max_running_requests;
  }
  void give_way();
  Sequence* who_gives_way(const Sequence& to);
  void retract(Sequence& sequence);
  void retract_last(Lane& lane) { retract(*lane.running.back()); }
  void release_resources(Sequence& sequence, Rows rows);
  static std::vector<Sequence*>::iterator position_in(Lane& lane, const Sequence& sequence);

  SchedulerConfig config_;
  Lanes lanes_;
  WaitingQueue waiting_;
  SchedulerStats stats_;
  std::optional<StepCost> cost_;  // with a bound

  int num_drafts_;
  std::optional<Pause> pause_;
  int num_giving_way_ = 0;  // sequences with gives_way, waiting or running

  int64_t num_plans_ = 0;

  // Of the plan being made; members to keep their memory.
  DraftBudget draft_budget_;
  PrefillBudget prefill_budget_;
  int step_tokens_left_ = 0;
  bool retracted_in_this_plan_ = false;
  std::vector<Chunk> chunks_;
  std::vector<Sequence*> publishing_;
  // An admission that failed is tried again when more blocks are available, or after a few steps.
  const Sequence* blocked_ = nullptr;
  int blocked_at_available_ = 0;
  int64_t blocked_until_step_ = 0;
};

}  // namespace fathom::sched
