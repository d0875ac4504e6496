#pragma once
// BlockLedger: the simulation's watch over blocks. It follows what is submitted and aborts when a slot writes
// a block that is not its own, shares one that is not whole yet, or gets one that a step in flight may still
// write or read.
//
//   BlockLedger ledger({.num_blocks = 32, .block_tokens = 64, .max_slots = 8});
//   ledger.submit(batch);                 // before the batch is queued
//   ledger.step_done(batch.step_id, lengths);   // once its result is known
//
// How long a sequence is after a verify slice comes out one step late, so the ledger keeps bounds: a slot may
// write every row up to the upper one, which must have a block, and shares what lies below the lower one.
// The first num_cached_tokens / block_tokens blocks of an admission are shared: several slots may read them,
// beside the one that wrote them, and none writes. Every other block has one slot, which may write it.
// Plain data of the runner's thread.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/batch.h"

namespace fathom::runner {

struct BlockLedgerConfig {
  int num_kv_groups = 1;
  int num_blocks = 0;  // of every group
  int block_tokens = 64;
  int max_slots = 0;
};

class BlockLedger {
 public:
  explicit BlockLedger(const BlockLedgerConfig& config);

  void submit(const core::Batch& batch);
  // lengths[i]: the rows that the slot of slice i has after the step.
  void step_done(int64_t step_id, std::span<const int32_t> lengths);

 private:
  struct Block {
    int32_t owner = -1;                                    // the slot that may write it
    int32_t index_in_owner = -1;                           // in the owner's table
    int num_readers = 0;                                   // slots that share it
    int64_t last_writer_step = -1, last_reader_step = -1;  // of slots that had it
  };
  struct Slot {
    int32_t length = 0;                        // after every step that is done
    int32_t min_advance = 0, max_advance = 0;  // of its slices in flight, together
    int32_t max_rows = 0;
    int32_t num_shared = 0;  // blocks at the start of each table
    int64_t num_admissions = 0;
    int64_t last_slice_step = -1;
    std::vector<std::vector<int32_t>> tables;  // [KV group]
  };

  // A slice in flight.
  struct Advance {
    int32_t slot = -1;
    int64_t admission = 0;  // Slot::num_admissions when it was submitted
    int32_t min = 0, max = 0;
  };

  int32_t min_length(const Slot& slot) const;
  int32_t max_length(const Slot& slot) const;
  Slot& slot_at(int32_t slot) { return slots_.at(static_cast<size_t>(slot)); }
  Block& block_at(size_t kv_group, int32_t block_id);
  void admit(const core::SlotAdmission& admission);
  void append(const core::BlockAppend& append);
  void share(Block& block, int32_t block_id, int32_t slot);
  void claim(Block& block, int32_t block_id, int32_t slot);
  void write(const core::SequenceSlice& slice);
  void release(int32_t slot);

  BlockLedgerConfig config_;
  std::vector<std::vector<Block>> blocks_;  // [KV group][block]
  std::vector<Slot> slots_;
  std::deque<std::vector<Advance>> in_flight_;  // [step][slice]
  int64_t last_done_step_ = -1;
};

}  // namespace fathom::runner
