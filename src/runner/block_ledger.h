#pragma once
// BlockLedger: the simulation's watch over blocks. It follows what is submitted and aborts when a slot writes
// a block that is not its own, shares one that is not whole yet, or gets one that a step in flight may still
// write or read.
//
//   BlockLedger ledger({.num_blocks = 32, .block_tokens = 64, .max_slots = 8});
//   ledger.submit(batch);                 // before the batch is queued
//   ledger.step_done(batch.step_id);      // once its result is known
//
// The first num_cached_tokens / block_tokens blocks of an admission are shared: several slots may read them,
// beside the one that wrote them, and none writes. Every other block has one slot, which may write it.
// Plain data of the runner's thread.

#include <cstdint>
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
  void step_done(int64_t step_id) { last_done_step_ = step_id; }

 private:
  struct Block {
    int32_t owner = -1;                                    // the slot that may write it
    int32_t index_in_owner = -1;                           // in the owner's table
    int num_readers = 0;                                   // slots that share it
    int64_t last_writer_step = -1, last_reader_step = -1;  // of slots that had it
  };
  struct Slot {
    int32_t length = 0;
    int32_t num_shared = 0;  // blocks at the start of each table
    int64_t last_slice_step = -1;
    std::vector<std::vector<int32_t>> tables;  // [KV group]
  };

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
  int64_t last_done_step_ = -1;
};

}  // namespace fathom::runner
