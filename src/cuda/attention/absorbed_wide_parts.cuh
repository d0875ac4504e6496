#pragma once
// What the blocks of wide absorbed attention (mla_absorbed_wide.cu) work on: an item is up to 64 heads of a query
// token, a part of it a run of the cache rows that the token may see. Parts begin at multiples of 128 rows.
//
//   walk_parts(p, [&](const WidePart& part, bool is_first, int parts) { ... });   // all lanes of a warp together
//
// Calls of few tokens cut an item by the rows that it sees alone, so that a token has the same bits in any company of
// that size. With more tokens the rows of all tokens, one after another, are dealt out in equal runs. Either way
// blocks that follow each other take the same rows for the groups of heads, so that they are read once.
//
// An item of several parts leaves each in a slot of scratch: in calls of few tokens an item's slots follow each other;
// with more, block b has slots 2b, for what it begins with, and 2b + 1. Internal to cuda/attention/.

#include <climits>

#include "cuda/attention/absorbed_shares.cuh"
#include "cuda/attention/mla_absorbed.h"

namespace fathom::cuda::absorbed {

inline constexpr int kWideUnitShift = 7;  // rows of the smallest part: two tiles
inline constexpr int kFewTokens = 8;      // the class of linear's, see docs/contracts/ops.md
inline constexpr int kMostFewParts = 64;  // of an item in a call of few tokens

// The rows of a part in a call of few tokens, as a power of two: 16 parts at most until they have 512 rows, then 32
// until they have 1024, then 64. More parts keep more blocks busy where there is one sequence (two for each part of 128
// heads), but each is another 128 KB to write and to read.
__host__ __device__ constexpr int few_shift(int rows) {
  const auto parts = [rows](int shift) { return (rows + (1 << shift) - 1) >> shift; };
  int shift = kWideUnitShift;
  while (shift < 9 && parts(shift) > 16) ++shift;
  while (shift < kChunkShift && parts(shift) > 32) ++shift;
  while (parts(shift) > kMostFewParts) ++shift;
  return shift;
}

// An item of several parts, whose first one has first_slot. With one part there is nothing to add.
struct alignas(16) PartedItem {
  int token, first_head, first_slot, parts;
};

struct WideParams {
  AbsorbedParams absorbed;  // a token is one item with all heads there (head_groups 1)
  int head_groups;          // of 64
  int block_shift;          // blocks of the cache have 1 << block_shift rows
  // What the parts of an item leave for whoever adds them up. Calls of few tokens have an entry for every item, others
  // for every block: the item that the block leaves to the next one, or none.
  float* values;  // [slots, 64, 512]
  float2* stats;  // [slots, 64]: maximum, sum
  PartedItem* items;
  const SeenRows* seen;  // [tokens, tiles] of rows that an item's tokens share
  int64_t seen_stride;
};

// A row of the cache whose block the table is asked for. A warp waits where it first uses what it loads, so producers
// look at it when the tile ahead of the row's is on its way.
struct AskedRow {
  int32_t block;

  // Of a part's row; those behind its last one may be any.
  __device__ __forceinline__ static AskedRow of(const WideParams& p, int seq, int row, int end) {
    const int32_t* const table = p.absorbed.block_tables + seq * p.absorbed.table_stride;
    return {row < end ? table[row >> p.block_shift] : 0};
  }
  __device__ __forceinline__ int32_t kv_row(const WideParams& p, int row) const {
    return (block << p.block_shift) + (row & ((1 << p.block_shift) - 1));
  }
};

struct WidePart {
  int token, first_head, num_heads;  // token -1: there are no more parts
  int seq;
  int begin_row, end_row;  // none of padding, or where the token sees nothing of the part
  int tree_row, query;     // rows from tree_row on are drafts, of which the token is the query-th
  uint64_t tree_mask;
  int slot;  // -1: the part is the whole item

  __device__ __forceinline__ static WidePart of(const AbsorbedParams& p, const QueryGroup& group,
                                                int head_group, int begin_row, int end_row,
                                                int slot) {
    return {.token = group.first_token,
            .first_head = head_group * kWideRows,
            .num_heads = min(kWideRows, p.heads - head_group * kWideRows),
            .seq = group.seq,
            .begin_row = begin_row,
            .end_row = group.kv_len == 0 ? begin_row : end_row,
            .tree_row = group.is_tree ? group.query_row() : INT_MAX,
            .query = group.first_query,
            .tree_mask = group.is_tree ? p.tree_mask[group.first_token] : 0,
            .slot = slot};
  }
  __device__ __forceinline__ bool has_rows() const { return begin_row < end_row; }
  // One past the last row of a tile that needs no look at single rows.
  __device__ __forceinline__ int plain_end() const { return min(end_row, tree_row); }
  __device__ __forceinline__ bool sees(int row) const {
    const int draft = row - tree_row;
    return row < end_row && (draft < 0 || draft == query || ((tree_mask >> (draft & 63)) & 1) != 0);
  }
};

// The sequence of a token.
struct TokenSequence {
  int seq, begin, end, kv_len;

  __device__ __forceinline__ static TokenSequence of(const AbsorbedParams& p, int token) {
    // A step that decodes one token of each sequence: the token's number is the sequence's.
    if (token < p.seqs) {
      const TokenSequence s{token, p.first_token(token), p.first_token(token + 1), p.kv_len[token]};
      if (s.begin == token && s.end == token + 1) return s;
    }
    TokenSequence s{0, 0, p.first_token(1), 0};
    while (s.end <= token) s = {s.seq + 1, s.end, p.first_token(s.seq + 2), 0};
    s.kv_len = p.kv_len[s.seq];
    return s;
  }
};

// Lane t has token t.
template <class Visit>
__device__ __forceinline__ void walk_few_parts(const WideParams& wide, const Visit& visit) {
  const AbsorbedParams& p = wide.absorbed;
  const int head_groups = wide.head_groups;
  const int lane = threadIdx.x % 32, used = p.first_token(p.seqs);
  TokenSequence s{};
  int rows = 0, units = 0;
  if (lane < min(p.tokens, used)) {
    s = TokenSequence::of(p, lane);
    const bool is_tree = p.tree_mask != nullptr && s.end - s.begin <= ops::kMaxTreeTokens;
    rows = is_tree || s.kv_len == 0 ? s.kv_len : s.kv_len - (s.end - 1 - lane);
    units = max(1, (rows + (1 << few_shift(rows)) - 1) >> few_shift(rows));
  }
  int behind = units;  // of this token and those before it
#pragma unroll
  for (int lanes = 1; lanes < kFewTokens; lanes *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, behind, lanes);
    if (lane >= lanes) behind += other;
  }
  const int total = __shfl_sync(0xffffffffu, behind, kFewTokens - 1) * head_groups;
  for (int at = static_cast<int>(blockIdx.x); at < total; at += static_cast<int>(gridDim.x)) {
    const int unit = at / head_groups, head_group = at % head_groups;
    const int owner = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, unit < behind))) - 1;
    const auto owners = [owner](int value) { return __shfl_sync(0xffffffffu, value, owner); };
    const int parts = owners(units), first_unit = owners(behind) - parts;
    const int first_token = owners(s.begin), seen = owners(rows);
    const QueryGroup group = make_group(p, owners(s.seq), owner - first_token, first_token,
                                        owners(s.end), owners(s.kv_len), kWideRows);
    const int index = unit - first_unit, shift = few_shift(seen);
    const int slot = first_unit * head_groups + head_group * parts + index;
    visit(WidePart::of(p, group, head_group, index << shift, min((index + 1) << shift, seen),
                       parts == 1 ? -1 : slot),
          index == 0, parts);
  }
}

template <class Visit>
__device__ __forceinline__ void walk_many_parts(const WideParams& wide, const Visit& visit) {
  const AbsorbedParams& p = wide.absorbed;
  const int head_groups = wide.head_groups;
  const int lane = threadIdx.x % 32, blocks = static_cast<int>(gridDim.x) / head_groups;
  const int block = static_cast<int>(blockIdx.x) / head_groups;
  if (block >= blocks) return;
  int units = 0;
#pragma unroll 4
  for (int base = 0; base < p.seqs; base += 32) {
    const SequenceUnits s = SequenceUnits::of(p, SequenceRows::of(p, base + lane), kWideUnitShift);
    units += s.items * s.units;
  }
  units = __reduce_add_sync(0xffffffffu, units);
  const int each = (units + blocks - 1) / blocks;
  const Shares shares{kWideUnitShift, each, units, false};
  const WalkState begin = begin_walk(p, SequenceRows::of(p, lane), shares, block);
  for (ItemWalk<kWideRows> walk(p, begin); walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    const int first_block = part.first_unit / each;
    const int parts = (part.first_unit + part.num_units - 1) / each - first_block + 1;
    const int begins_inside = (part.first_unit + part.part_begin) % each != 0 ? 1 : 0;
    visit(WidePart::of(p, part.group, static_cast<int>(blockIdx.x) % head_groups, part.begin_row,
                       part.end_row,
                       parts == 1 ? -1 : 2 * static_cast<int>(blockIdx.x) + begins_inside),
          part.part_begin == 0, parts);
  }
}

template <class Visit>
__device__ __forceinline__ void walk_parts(const WideParams& p, const Visit& visit) {
  p.absorbed.tokens <= kFewTokens ? walk_few_parts(p, visit) : walk_many_parts(p, visit);
}

// The slot of an item's part, whose first one is first_slot.
__device__ __forceinline__ int part_slot(const WideParams& p, int first_slot, int part) {
  if (p.absorbed.tokens <= kFewTokens) return first_slot + part;
  return part == 0 ? first_slot : 2 * (first_slot / 2 + part * p.head_groups);
}

}  // namespace fathom::cuda::absorbed
