#pragma once
// How the blocks of streamed absorbed attention (mla_absorbed_stream.cu) share the rows of all items.
//
//   const WalkState begin = begin_walk(p, blockIdx.x);                  // all lanes of a warp together
//   for (ItemWalk<16> walk(p, begin); walk.is_inside(); walk.next()) {
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
// A unit leaves a partial sum, which is stored and added up: that takes as long as so many rows more.
inline constexpr int kUnitRows = 160;

struct Shares {
  int row_shift;    // a unit has 1 << row_shift rows: 128, 256, 512 or 1024
  int block_units;  // of each block
  int num_units;
  // There is no scratch for so many units: an item is its first unit's block's as a whole.
  bool whole_items;
};

// A sequence's query tokens and rows of the cache; none behind the last sequence.
struct SequenceRows {
  int begin = 0, end = 0, kv_len = 0;

  __device__ __forceinline__ static SequenceRows of(const AbsorbedParams& p, int seq) {
    if (seq >= p.seqs) return {};
    return {p.first_token(seq), p.first_token(seq + 1), p.kv_len[seq]};
  }
};

// One sequence's items and the units of each. One without rows (padding) has a unit, in which zeros are written.
struct SequenceUnits {
  SequenceRows rows;
  int items = 0, units = 0;

  __device__ __forceinline__ static SequenceUnits of(const AbsorbedParams& p,
                                                     const SequenceRows& rows, int shift) {
    const int tokens = rows.end - rows.begin;
    SequenceUnits s{rows, tokens * p.head_groups,
                    max(1, (rows.kv_len + (1 << shift) - 1) >> shift)};
    if (p.group_tokens > 1) s.items = (tokens + p.group_tokens - 1) / p.group_tokens;
    return s;
  }
};

// `first`: the lane's of the first 32 sequences. A block begins with this, one instruction behind the other, so few of
// them count.
__device__ __forceinline__ Shares make_shares(const AbsorbedParams& p, const SequenceRows& first,
                                              int blocks) {
  const int lane = threadIdx.x % 32;
  int counts[4] = {};  // of units of 1024, 512, 256, 128 rows
  const auto count = [&](const SequenceRows& rows) {
    const SequenceUnits s = SequenceUnits::of(p, rows, kChunkShift - 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) counts[i] += s.items * ((s.units + (8 >> i) - 1) >> (3 - i));
  };
  count(first);
#pragma unroll 8
  for (int base = 32; base < p.seqs; base += 32) count(SequenceRows::of(p, base + lane));
  uint32_t mine = 0;  // a lane each divides
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    counts[i] = __reduce_add_sync(0xffffffffu, counts[i]);
    if (lane == i) mine = static_cast<uint32_t>(counts[i]);
  }
  const uint32_t share = (mine + blocks - 1) / static_cast<uint32_t>(blocks);
  Shares best{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int units = counts[i], shift = kChunkShift - i;
    const auto each = static_cast<int>(__shfl_sync(0xffffffffu, share, i));
    const auto cost = [](int block_units, int row_shift) {
      return block_units * ((1 << row_shift) + kUnitRows);
    };
    if (i == 0 ||
        (units <= p.max_nodes && cost(each, shift) < cost(best.block_units, best.row_shift)))
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

// Where a block is in the units of all items.
struct WalkState {
  Shares shares;
  int seq = 0, index = 0;  // the item, of its sequence's
  int at = 0;              // unit of the item
  int unit = 0, end = 0;   // among all
  SequenceUnits units;

  // To the next item's first unit.
  __device__ __forceinline__ void next(const AbsorbedParams& p) {
    unit += units.units - at;
    at = 0;
    if (++index < units.items) return;
    index = 0;
    while (unit < end) {
      units = SequenceUnits::of(p, SequenceRows::of(p, ++seq), shares.row_shift);
      if (units.items > 0) return;
    }
  }
};

template <int kQueryRows>
class ItemWalk {
 public:
  __device__ __forceinline__ ItemWalk(const AbsorbedParams& p, const WalkState& begin)
      : p_(p), at_(begin) {}

  __device__ __forceinline__ const Shares& shares() const { return at_.shares; }
  __device__ __forceinline__ bool is_inside() const { return at_.unit < at_.end; }
  // Whether this block has no item behind this one.
  __device__ __forceinline__ bool is_last() const {
    return at_.unit + at_.units.units - at_.at >= at_.end;
  }
  __device__ __forceinline__ void next() { at_.next(p_); }

  __device__ __forceinline__ ItemPart part() const {
    const SequenceUnits& units = at_.units;
    ItemPart part;
    part.group = make_group(p_, at_.seq, at_.index, units.rows.begin, units.rows.end,
                            units.rows.kv_len, kQueryRows);
    part.first_unit = at_.unit - at_.at;
    part.num_units = units.units;
    part.part_begin = at_.at;
    part.part_end =
        shares().whole_items ? units.units : min(units.units, at_.at + at_.end - at_.unit);
    part.begin_row = at_.at << shares().row_shift;
    part.end_row = min(part.part_end << shares().row_shift, part.group.end());
    part.is_whole = at_.at == 0 && part.part_end == units.units;
    return part;
  }

 private:
  const AbsorbedParams& p_;
  WalkState at_;
};

// The sequence, item and unit that state.unit is. Each lane has one of 32 sequences at a time, `first` to begin with.
__device__ __forceinline__ void find_unit(const AbsorbedParams& p, SequenceRows first,
                                          WalkState& state) {
  const int lane = threadIdx.x % 32;
  int before = 0;
#pragma unroll 1
  for (int base = 0;; base += 32) {
    const SequenceUnits s = SequenceUnits::of(p, first, state.shares.row_shift);
    const int mine = s.items * s.units;
    first = SequenceRows::of(p, base + 32 + lane);  // on its way meanwhile
    const int all = __reduce_add_sync(0xffffffffu, mine);
    if (state.unit - before >= all) {
      before += all;
      continue;
    }
    int sum = mine;  // of this lane's sequences and those before it
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      if (lanes >= p.seqs) break;
      const int other = __shfl_up_sync(0xffffffffu, sum, lanes);
      if (lane >= lanes) sum += other;
    }
    const int at = state.unit - before - (sum - mine);
    const uint32_t holds = __ballot_sync(0xffffffffu, at >= 0 && at < mine);
    const int owner = __ffs(static_cast<int>(holds)) - 1;
    const auto of_owner = [&](int value) { return __shfl_sync(0xffffffffu, value, owner); };
    state.seq = base + owner;
    state.units = {{of_owner(s.rows.begin), of_owner(s.rows.end), of_owner(s.rows.kv_len)},
                   of_owner(s.items),
                   of_owner(s.units)};
    state.at = of_owner(at);
    if (state.units.items > 1) {
      state.index = state.at / state.units.units;
      state.at -= state.index * state.units.units;
    }
    return;
  }
}

__device__ __forceinline__ WalkState begin_walk(const AbsorbedParams& p, const SequenceRows& first,
                                                const Shares& shares, int block) {
  WalkState state;
  state.shares = shares;
  state.unit = block * shares.block_units;
  state.end = min(state.unit + shares.block_units, shares.num_units);
  if (state.unit >= state.end) return state;
  find_unit(p, first, state);
  if (shares.whole_items && state.at > 0) state.next(p);
  return state;
}
__device__ __forceinline__ WalkState begin_walk(const AbsorbedParams& p, int block) {
  const SequenceRows first = SequenceRows::of(p, threadIdx.x % 32);
  return begin_walk(p, first, make_shares(p, first, static_cast<int>(gridDim.x)), block);
}

}  // namespace fathom::cuda::absorbed
