#pragma once
// SimRunner: the runner without a model. Its KV storage (sim_storage.h) holds (token, position) per row,
// written and read through the real block tables, and the next token is a hash of every row the query
// token can see. A block that is mixed up, freed too early or missing changes the output or aborts
// (block_ledger.h), and so does a cached prefix whose rows are not those of the prompt. Scheduler,
// cache and server are tested on it exactly, at full speed, without a model.
// With a drafter (sim_drafter.h) it verifies what that proposed: a draft is accepted when it is the token
// that the target draws in its place, so the output is that of plain decoding, token by token. Accepted
// rows of a tree are moved together; rejected ones are overwritten.
//
//   SimRunner runner({.num_blocks = 32, .max_slots = 8});
//   runner.submit(batch);
//   core::StepResult result = runner.wait();
//   EXPECT_EQ(result.slices[0].tokens[0].token, SimRunner::expected_next(prompt, {.vocab_size =
//   1000}));
//
// A step runs when it is waited for, in the caller's thread, so runs are deterministic; submit()
// only queues, so tokens are as unknown to the caller as on a real device. With step_delay the
// device takes that long per step, from submission or from the end of the step before: wait()
// sleeps until then. With a cost (sim_cost.h) a step tells that it took as long as its work costs; nobody sleeps.
//
// Of the sampling parameters it follows seed (when temperature > 0 and top_k != 1), min_new_tokens
// with the stop ids, and the log-probability requests, whose values are made up from the hash.
// Failpoints. "sim_runner.slice": the slice fails as if its logits were not finite. Faults that a test must
// notice: "sim_runner.accept" accepts a draft that is not the target's draw, "sim_runner.compact" leaves the
// accepted rows of a tree where they are, "sim_runner.collective" leaves out the last collective of a step,
// "sim_runner.dies" enters none any more.
// A mask moves the token that the hash chose to the next allowed one (upwards, from the last to 0), as a
// ban does. When bans and mask leave none, the slice fails.
// One thread uses a SimRunner, any thread sets masks.

#include <chrono>
#include <deque>
#include <span>

#include "base/clock.h"

#include "runner/block_ledger.h"
#include "runner/mask_mailbox.h"
#include "runner/runner.h"
#include "runner/sim/collectives.h"
#include "runner/sim/cost.h"
#include "runner/sim/drafter.h"
#include "runner/sim/storage.h"

namespace fathom::runner {

struct SimConfig {
  int vocab_size = 1000;
  int num_blocks = 64, block_tokens = 64;
  int64_t max_context_tokens = 1 << 20;  // cut to what the pool holds
  int max_slots = 8, max_batch_tokens = 8192;
  int num_kv_groups = 1;       // each with num_blocks; every group must tell the same rows
  SimDrafterConfig drafter{};  // with one there is a KV group more, the drafter's
  std::chrono::microseconds step_delay{0};
  SimCostConfig cost{};  // of all 0: StepResult::wall_seconds is the step_delay
  // Of several lanes: where this one, number `lane`, tells what it would enter with the others. Null = it is alone.
  SimCollectives* collectives = nullptr;
  int lane = 0;
};

class SimRunner : public Runner {
 public:
  struct NextToken {
    int vocab_size = 1000;
    uint64_t seed = 0;                  // of a sampled request; 0 for a greedy one
    std::span<const int32_t> banned{};  // stop ids, while they are banned
    std::span<const uint64_t> mask{};   // bit t of word t / 64: t is allowed; empty = all are
  };

  explicit SimRunner(const SimConfig& config);

  const RunnerInfo& info() const override { return info_; }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void share_masks(SharedMasks masks) override { masks_.put(std::move(masks)); }
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override {
    return cost_.slice_work(num_tokens, kv_begin);
  }
  int in_flight() const override { return static_cast<int>(queue_.size()); }
  int64_t next_step_id() const override { return next_step_id_; }

  // The token that follows `tokens` when every row is where it belongs; -1 = none is allowed.
  static int32_t expected_next(std::span<const int32_t> tokens, const NextToken& options);

 private:
  struct Slot {
    bool active = false;
    core::SlotAdmission admission{};
    int32_t length = 0, last_token = -1;
    std::vector<core::Draft> drafts{};
    SimTable table{};
  };
  struct Pending {
    core::Batch batch;
    Clock::time_point submitted;
  };
  // The rows of a verify slice while it runs: node 0 is the last token, node i + 1 is draft i.
  struct Tree {
    std::vector<core::Draft> drafts;
    std::vector<int32_t> depths;  // [nodes]
    int num_nodes() const { return static_cast<int>(depths.size()); }
    int32_t child_of(int32_t node, int32_t token) const;  // -1 = none
    int32_t first_child_of(int32_t node) const;           // -1 = none
  };
  // What is confirmed of it: a path from node 0, and the token that the target draws after each of its nodes.
  struct Path {
    std::vector<int32_t> nodes{};
    std::vector<core::SampledToken> tokens{};
    uint64_t hash = 0;  // of all rows up to the last node
  };

  // Device side.
  void apply_deltas(const core::Batch& batch);
  void admit(const core::SlotAdmission& admission);
  void meet_other_lanes(const core::Batch& batch);
  core::SliceResult run_slice(const core::SequenceSlice& slice, std::span<const uint64_t> mask);
  core::SliceResult run_prefill(Slot& slot, const core::SequenceSlice& slice,
                                std::span<const uint64_t> mask);
  // Decode and verify.
  core::SliceResult run_advance(Slot& slot, const core::SequenceSlice& slice,
                                std::span<const uint64_t> mask);
  void write_given_rows(const Slot& slot, const core::SequenceSlice& slice);
  Tree write_draft_rows(const Slot& slot, int max_drafts);
  // Empty: nothing can be chosen after the last token.
  Path confirm(const Slot& slot, const Tree& tree, std::span<const uint64_t> mask) const;
  uint64_t hash_visible(const Slot& slot, const core::SequenceSlice& slice, int query_idx,
                        uint64_t prefix_hash) const;
  // The drafter's rows of what the slot has grown by, then its drafts.
  void draft(Slot& slot, int32_t first_row, int num_drafts, uint64_t hash);
  NextToken options_of(const Slot& slot, int position) const;
  std::span<const uint64_t> mask_row(std::span<const uint64_t> mask, size_t row) const;
  core::SampledToken describe(const Slot& slot, uint64_t hash, int32_t token) const;

  SimConfig config_;
  RunnerInfo info_;
  SimDrafter drafter_;
  SimCost cost_;
  SimStorage storage_;
  std::vector<Slot> slots_;
  BlockLedger ledger_;  // submission side
  std::deque<Pending> queue_;
  MaskMailbox masks_;
  int64_t next_step_id_ = 0;
  Clock::time_point device_free_{};
  bool is_dead_ = false;
};

}  // namespace fathom::runner
