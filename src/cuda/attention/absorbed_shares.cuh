#pragma once
// How the blocks of streamed absorbed attention (mla_absorbed_stream.cu) share the rows of all items.
//
//   const Shares shares = make_shares(p);                       // all lanes of a warp together, here and below
//   for (ItemWalk<16> walk(p, shares, blockIdx.x); walk.is_inside(); walk.next()) {
//     const ItemPart part = walk.part();                        // an item, and the rows of it that are this block's
//   }
//
// An item's rows are cut into units of 128, 256, 512 or 1024; the units of all items, one after another, are dealt out
// in equal runs. So what a block does follows from the lengths alone, and every block finds its own. Internal to
// cuda/attention/.

#include "cuda/attention/mla_absorbed.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kStreamRows = 16;  // query rows of an item
inline constexpr int kChunkShift = 10;  // of 1024 rows
inline constexpr int kChunkUnits = 8;   // at most

struct Shares {
  int row_shift;    // a unit has 1 << row_shift rows: 128, 256, 512 or 1024
  int block_units;  // of each block
  int num_units;
  // There is no scratch for so many units: an item is its first unit's block's as a whole.
  bool whole_items;
};

// One sequence's items and the units of each. One without rows (padding) has a unit, in which zeros are written.
struct SequenceUnits {
  int begin = 0, end = 0, kv_len = 0, items = 0, units = 0;

  __device__ __forceinline__ static SequenceUnits of(const AbsorbedParams& p, int seq, int shift) {
    SequenceUnits s;
    if (seq >= p.seqs) return s;
    s.begin = p.first_token(seq);
    s.end = p.first_token(seq + 1);
    s.kv_len = p.kv_len[seq];
    s.items = (s.end - s.begin) * p.head_groups;
    if (p.group_tokens > 1) s.items = (s.end - s.begin + p.group_tokens - 1) / p.group_tokens;
    s.units = max(1, (s.kv_len + (1 << shift) - 1) >> shift);
    return s;
  }
};

__device__ __forceinline__ Shares make_shares(const AbsorbedParams& p) {
  const int lane = threadIdx.x % 32, blocks = static_cast<int>(gridDim.x);
  int counts[4] = {};  // of units of 1024, 512, 256, 128 rows
#pragma unroll 4
  for (int base = 0; base < p.seqs; base += 32) {
    const SequenceUnits s = SequenceUnits::of(p, base + lane, kChunkShift - 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) counts[i] += s.items * ((s.units + (8 >> i) - 1) / (8 >> i));
  }
  Shares best{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int units = __reduce_add_sync(0xffffffffu, counts[i]);
    const int shift = kChunkShift - i, each = (units + blocks - 1) / blocks;
    // Smaller units leave partial sums to merge: only for an eighth of the time.
    if (i == 0 ||
        (units <= p.max_nodes && (each << shift) * 8 < (best.block_units << best.row_shift) * 7))
      best = {shift, each, units, units > p.max_nodes};
  }
  return best;
}

struct ItemPart {
  QueryGroup group;
  int first_unit, num_units;  // the item's, among all
  int part_begin, part_end;   // this block's of them, counted from the item's first
  int begin_row, end_row;     // of the cache rows that the item's queries may see
  bool is_whole;
};

template <int kQueryRows>
class ItemWalk {
 public:
  __device__ __forceinline__ ItemWalk(const AbsorbedParams& p, const Shares& shares, int block)
      : p_(p), shares_(shares) {
    unit_ = block * shares.block_units;
    end_ = min(unit_ + shares.block_units, shares.num_units);
    if (unit_ >= end_) return;
    find();
    if (shares.whole_items && at_ > 0) next();
  }

  __device__ __forceinline__ bool is_inside() const { return unit_ < end_; }
  // Whether this block has no item behind this one.
  __device__ __forceinline__ bool is_last() const { return unit_ + units_.units - at_ >= end_; }

  __device__ __forceinline__ ItemPart part() const {
    ItemPart part;
    part.group = make_group(p_, seq_, index_, units_.begin, units_.end, units_.kv_len, kQueryRows);
    part.first_unit = unit_ - at_;
    part.num_units = units_.units;
    part.part_begin = at_;
    part.part_end = shares_.whole_items ? units_.units : min(units_.units, at_ + end_ - unit_);
    part.begin_row = at_ << shares_.row_shift;
    part.end_row = min(part.part_end << shares_.row_shift, part.group.end());
    part.is_whole = at_ == 0 && part.part_end == units_.units;
    return part;
  }

  // To the next item's first unit.
  __device__ __forceinline__ void next() {
    unit_ += units_.units - at_;
    at_ = 0;
    if (++index_ < units_.items) return;
    index_ = 0;
    while (unit_ < end_) {
      units_ = SequenceUnits::of(p_, ++seq_, shares_.row_shift);
      if (units_.items > 0) return;
    }
  }

 private:
  // The sequence, item and unit that unit_ is. Each lane has one of 32 sequences at a time.
  __device__ __forceinline__ void find() {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0;; base += 32) {
      const SequenceUnits s = SequenceUnits::of(p_, base + lane, shares_.row_shift);
      const int mine = s.items * s.units;
      int sum = mine;  // of this lane's sequences and those before it
#pragma unroll
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, lanes);
        if (lane >= lanes) sum += other;
      }
      const int at = unit_ - before - (sum - mine);
      const uint32_t holds = __ballot_sync(0xffffffffu, at >= 0 && at < mine);
      if (holds != 0) {
        const int owner = __ffs(static_cast<int>(holds)) - 1;
        seq_ = base + owner;
        units_ = SequenceUnits::of(p_, seq_, shares_.row_shift);
        const int rest = __shfl_sync(0xffffffffu, at, owner);
        index_ = rest / units_.units;
        at_ = rest % units_.units;
        return;
      }
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }

  const AbsorbedParams& p_;
  const Shares shares_;
  int seq_ = 0, index_ = 0;  // the item, of its sequence's
  int at_ = 0;               // unit of the item
  int unit_ = 0, end_ = 0;   // among all
  SequenceUnits units_;
};

}  // namespace fathom::cuda::absorbed
