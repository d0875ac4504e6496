#pragma once
// Blocks of one KV group: who owns which. A block is FREE, OWNED by a lease, or FENCED: its lease
// is gone but a step in flight may still write it; it becomes FREE when that step is known to be
// done.
//
//   BlockPool pool({.num_blocks = 1024});
//   Result<BlockPool::Lease> lease = pool.lease(3);          // kResourceEmpty when fewer are free
//   if (!lease) return lease.error();
//   sequence.blocks.push_back(std::move(*lease));            // returned by the destructor
//   pool.step_submitted(step_id);  ...  pool.step_done(step_id);
//
// One thread (the scheduler's) uses a pool and its leases. The pool outlives its leases.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::cache {

struct BlockPoolConfig {
  int num_blocks = 0;
};

class BlockPool {
 public:
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();

    const std::vector<int32_t>& ids() const { return ids_; }
    // Takes over the blocks of another lease of the same pool.
    void merge(Lease other);
    // The first num_blocks blocks leave this lease. REQUIRES: it has as many.
    Lease take_front(int num_blocks);
    // Ends the lease of blocks that no step after `step_id` uses: FREE at once if that step is done.
    void release_as_of(int64_t step_id);
    // One lease per block, in order; this one is empty afterwards.
    std::vector<Lease> split();

   private:
    friend class BlockPool;
    Lease(BlockPool* pool, std::vector<int32_t> ids) : pool_(pool), ids_(std::move(ids)) {}
    void release();
    BlockPool* pool_ = nullptr;
    std::vector<int32_t> ids_;
  };

  explicit BlockPool(const BlockPoolConfig& config);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // All or nothing.
  Result<Lease> lease(int num_blocks);

  // Steps that may write blocks, in rising order. A block whose lease ends while steps are in
  // flight stays FENCED until the last step submitted by then is done.
  void step_submitted(int64_t step_id);
  void step_done(int64_t step_id);
  int64_t last_submitted() const { return last_submitted_; }

  int num_blocks() const { return static_cast<int>(states_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_fenced() const { return static_cast<int>(fenced_.size()); }
  int num_owned() const { return num_blocks() - num_free() - num_fenced(); }

  // Whether a lease has the block.
  bool is_owned(int32_t block_id) const {
    return block_id >= 0 && block_id < num_blocks() &&
           states_[static_cast<size_t>(block_id)] == State::kOwned;
  }

  // Empty = every block is in exactly one state and the lists agree; else what is wrong.
  std::string check_integrity() const;

 private:
  enum class State : uint8_t { kFree, kOwned, kFenced };
  struct Fenced {
    int32_t block_id;
    int64_t step_id;
  };
  // last_step: the last one that may use the blocks.
  void give_back(const std::vector<int32_t>& ids, int64_t last_step);

  std::vector<State> states_;
  std::vector<int32_t> free_;
  std::deque<Fenced> fenced_;
  int64_t last_submitted_ = -1, last_done_ = -1;
};

}  // namespace fathom::cache
