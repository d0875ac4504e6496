#pragma once
// Scheduler: decides what the next step computes and who owns which slot and which blocks.
//
//   Scheduler scheduler({.num_slots = 64, .max_batch_tokens = 8192, .kv_groups = {{.num_blocks = 1024}}});
//   scheduler.enqueue(sequence);
//   PlannedStep step = scheduler.plan(step_id);      // may be empty: everything waits
//   if (!step.batch.empty()) { runner.submit(step.batch); scheduler.step_submitted(step_id); }
//   ...  scheduler.step_done(step_id);
//
// First come, first served. One step holds a decode of every sequence that can, oldest first, then chunks
// of prompts. Admission leases the blocks of all tokens known plus one, so a prefill never stops halfway.
// A decode that finds no block waits when blocks are fenced (they are free one step later) and otherwise
// retracts the youngest running sequence: its blocks go back and it is computed again later, to the same
// tokens. The oldest sequence always gets its blocks, so every step makes progress.
// One thread uses it.

#include <deque>
#include <memory>

#include "core/batch.h"
#include "sched/sequence.h"

namespace fathom::sched {

struct KvGroupConfig {
  int num_blocks = 0, block_tokens = 64;
};

struct SchedulerConfig {
  int num_slots = 1;
  int max_batch_tokens = 1;  // query tokens of one step
  std::vector<KvGroupConfig> kv_groups{};
  int chunked_prefill_size = 2048;  // prompt tokens of one step, >= 1
  int max_running_requests = 1;     // >= 1
};

// What a slice of the batch was planned for; same order as Batch::slices.
struct PlannedSlice {
  SequencePtr sequence;
  int first_position = 0;
  bool ends_prefill = false;
};

struct PlannedStep {
  core::Batch batch;
  std::vector<PlannedSlice> slices;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);

  void enqueue(SequencePtr sequence);
  PlannedStep plan(int64_t step_id);
  // Ends a sequence, waiting or running: its blocks go back (fenced while steps are in flight) and its slot
  // is released by the next step.
  void remove(Sequence& sequence);

  void step_submitted(int64_t step_id);
  void step_done(int64_t step_id);

  bool has_work() const {
    return !waiting_.empty() || !running_.empty() || !pending_releases_.empty();
  }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int64_t num_retractions() const { return num_retractions_; }
  int num_free_slots() const { return static_cast<int>(free_slots_.size()); }
  const cache::BlockPool& pool(int kv_group) const {
    return *groups_.at(static_cast<size_t>(kv_group)).pool;
  }
  // Empty = pools, slots and sequences agree; else what is wrong.
  std::string check_integrity() const;

 private:
  struct KvGroup {
    std::unique_ptr<cache::BlockPool> pool;
    int block_tokens = 0;
  };
  enum class Blocks { kReady, kWait, kRetracted };

  void plan_decodes(PlannedStep& step);
  void plan_prefills(PlannedStep& step);
  void plan_admissions(PlannedStep& step);
  void plan_chunk(const SequencePtr& sequence, PlannedStep& step);
  // Makes room for `rows` rows, by retracting younger sequences (or this one) if it must.
  Blocks provide_blocks(Sequence& sequence, int rows, core::Batch& batch);
  bool lease_blocks(Sequence& sequence, int rows, core::Batch& batch);
  bool any_fenced() const;
  void retract(const SequencePtr& sequence);
  void release_resources(Sequence& sequence);

  SchedulerConfig config_;
  // Pools outlive the leases in the sequences below.
  std::vector<KvGroup> groups_;
  std::deque<SequencePtr> waiting_;   // by arrival
  std::vector<SequencePtr> running_;  // by arrival
  std::vector<int32_t> free_slots_;
  std::vector<int32_t> pending_releases_;
  int step_tokens_left_ = 0, prefill_tokens_left_ = 0;
  bool retracted_in_this_plan_ = false;
  int64_t num_retractions_ = 0;
};

}  // namespace fathom::sched
