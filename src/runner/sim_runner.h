#pragma once
// SimRunner: the runner without a model. Its KV storage holds (token, position) per row, written
// and read through the real block tables, and the next token is a hash of every row the query token
// can see. A block that is mixed up, freed too early or missing changes the output or aborts
// (block_ledger.h), and so does a cached prefix whose rows are not those of the prompt. Scheduler,
// cache and server are tested on it exactly, at full speed, without a model.
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
// sleeps until then.
//
// Of the sampling parameters it follows seed (when temperature > 0 and top_k != 1), min_new_tokens
// with the stop ids, and the log-probability requests, whose values are made up from the hash.
// Failpoint "sim_runner.slice": the slice fails as if its logits were not finite.
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

namespace fathom::runner {

struct SimConfig {
  int vocab_size = 1000;
  int num_blocks = 64, block_tokens = 64;
  int64_t max_context_tokens = 1 << 20;  // cut to what the pool holds
  int max_slots = 8, max_batch_tokens = 8192;
  int num_kv_groups = 1;  // each with num_blocks; every group must tell the same rows
  std::chrono::microseconds step_delay{0};
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
  void set_masks(core::StepMasks masks) override { masks_.put(std::move(masks)); }
  int in_flight() const override { return static_cast<int>(queue_.size()); }
  int64_t next_step_id() const override { return next_step_id_; }

  // The token that follows `tokens` when every row is where it belongs; -1 = none is allowed.
  static int32_t expected_next(std::span<const int32_t> tokens, const NextToken& options);

 private:
  struct Row {
    int32_t token = -1, position = -1;
  };
  struct KvGroup {
    std::vector<Row> rows;  // [num_blocks * block_tokens]
  };
  struct Slot {
    bool active = false;
    core::SlotAdmission admission;
    int32_t length = 0, last_token = -1;
    std::vector<std::vector<int32_t>> block_tables;  // per KV group
  };
  struct Pending {
    core::Batch batch;
    Clock::time_point submitted;
  };

  // Device side.
  void apply_deltas(const core::Batch& batch);
  void admit(const core::SlotAdmission& admission);
  void check_cached_rows(const core::SlotAdmission& admission) const;
  core::SliceResult run_slice(const core::SequenceSlice& slice, std::span<const uint64_t> mask);
  void write_rows(const Slot& slot, const core::SequenceSlice& slice);
  uint64_t hash_visible(const Slot& slot, const core::SequenceSlice& slice, int query_idx) const;
  NextToken options_of(const Slot& slot, int position) const;
  core::SampledToken describe(const Slot& slot, uint64_t hash, int32_t token) const;
  // Where row row_idx of the sequence lies, through its block table.
  size_t row_index(size_t kv_group, const Slot& slot, int32_t row_idx) const;

  SimConfig config_;
  RunnerInfo info_;
  std::vector<KvGroup> groups_;
  std::vector<Slot> slots_;
  BlockLedger ledger_;  // submission side
  std::deque<Pending> queue_;
  MaskMailbox masks_;
  int64_t next_step_id_ = 0;
  Clock::time_point device_free_{};
};

}  // namespace fathom::runner
