#pragma once
// What the two kernels of expanded attention share: one for V3's heads of 128 + 64 and 128 values, one for any.
//
// Between calls of its segments a query's state is its maximum score in units of log2, the sum of its weights and its
// weighted values. Rows are taken 128 at a time from a segment's first one on, so what a query gets depends on where
// segments begin but not on who else is in the call. Internal to cuda/attention/expanded/.

#include "cuda/device/convert.cuh"
#include "ops/mla.h"

namespace fathom::cuda {

inline constexpr int kMaxExpandedSegments = 40;

struct ExpandedParams {
  const Bf16* q;       // [tokens, heads, nope + rope]
  const Bf16* kv;      // [rows, heads, nope + v]
  const Bf16* k_rope;  // [rows, rope]
  const uint64_t* tree_mask;
  const uint32_t* kept;  // [tokens, kept_words]; null: queries see all that is visible
  int64_t kept_words;
  int64_t kept_from;  // row of the first query with bits
  float* state_max;   // [tokens, heads]
  float* state_sum;
  float* state_acc;  // [tokens, heads, v]
  Bf16* out;         // [tokens, heads, v]; null: no segment is the last
  int heads, nope, rope, v;
  float scale;  // times log2(e)
  int num_segments;
  int tile_end[kMaxExpandedSegments];  // of the segments' query tiles, numbered through
  ops::ExpandedSegment segments[kMaxExpandedSegments];
};

// The work of one block: a segment, and which of its queries.
struct ExpandedBlock {
  const ops::ExpandedSegment* segment;
  int first_query;

  // A key, counted from the segment's first, and one past the last that query i of the segment may see.
  __device__ int end(int query) const {
    const int64_t rows = segment->num_rows;
    if (segment->has_tree_mask) return static_cast<int>(rows);
    const int64_t own = segment->query_begin + query + 1 - segment->row_begin;
    return static_cast<int>(own < 0 ? 0 : own < rows ? own : rows);
  }
  // One past the last key that all queries from `query` on see.
  __device__ int full_end(int query) const {
    if (!segment->has_tree_mask) return end(query);
    const int64_t shared = segment->query_begin - segment->row_begin;
    return static_cast<int>(shared < 0                   ? 0
                            : shared < segment->num_rows ? shared
                                                         : segment->num_rows);
  }
  // The first word of what query i keeps of the segment's rows, or null: it sees all that is visible.
  __device__ const uint32_t* kept(const ExpandedParams& p, int query) const {
    if (p.kept == nullptr || segment->query_begin + query < p.kept_from) return nullptr;
    return p.kept + (segment->token_begin + query) * p.kept_words + segment->row_begin / 32;
  }
  __device__ bool is_visible(int query, uint64_t mask, int key) const {
    const int64_t j = segment->row_begin + key - segment->query_begin;
    if (!segment->has_tree_mask) return j <= query;
    return j < 0 || j == query || (j < ops::kMaxTreeTokens && ((mask >> j) & 1) != 0);
  }
  // The same of 32 keys, a bit each, those from end(query) on left out.
  __device__ uint32_t visible_keys(int query, uint64_t mask, int first_key) const {
    const uint32_t exist = low_bits(end(query) - first_key);
    if (!segment->has_tree_mask) return exist;
    const int j = static_cast<int>(segment->row_begin + first_key - segment->query_begin);
    uint32_t visible = low_bits(-j);
    if (j >= 0 && j < ops::kMaxTreeTokens) visible |= static_cast<uint32_t>(mask >> j);
    if (j < 0 && j > -32) visible |= static_cast<uint32_t>(mask << -j);
    if (query >= j && query < j + 32) visible |= 1u << (query - j);
    return visible & exist;
  }

 private:
  __device__ static uint32_t low_bits(int count) {
    return count <= 0 ? 0u : (count >= 32 ? ~0u : (1u << count) - 1);
  }
};

__device__ __forceinline__ ExpandedBlock find_block(const ExpandedParams& p, int tile,
                                                    int tile_queries) {
  int segment = 0;
  while (tile >= p.tile_end[segment]) ++segment;
  const int first = segment == 0 ? 0 : p.tile_end[segment - 1];
  return {&p.segments[segment], (tile - first) * tile_queries};
}

bool has_fast_expanded(const ops::MlaExpandedArgs& args);
constexpr int kFastExpandedQueries = 128;
// Segments and their tiles are filled in.
void fast_expanded(const ExpandedParams& p, const ops::MlaExpandedArgs& args, ops::Stream& stream);
void generic_expanded(const ExpandedParams& p, ops::Stream& stream);

}  // namespace fathom::cuda
