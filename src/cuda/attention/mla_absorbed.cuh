#pragma once
// Which query rows and cache rows a block of absorbed attention works on.
//
// The query rows of a block are those of one sequence: some heads of a token, or all heads of some tokens.
// Internal to cuda/attention/.

#include "cuda/cache/kv_row.cuh"
#include "ops/mla.h"

namespace fathom::cuda {

struct AbsorbedParams {
  const Bf16* q_latent;  // [tokens, heads, latent]
  const Bf16* q_rope;    // [tokens, heads, rope], strided
  int64_t q_rope_token_stride, q_rope_head_stride;
  bool q_rope_is_aligned;  // 16 bytes at a time
  KvLayout cache;
  const int32_t* block_tables;  // [seqs, blocks]
  int64_t table_stride;
  int block_tokens;
  const int32_t* query_start;  // [seqs + 1]; null = a token of each sequence
  const int32_t* kv_len;
  const uint64_t* tree_mask;  // null = causal
  int tokens, seqs, heads;
  float scale;  // times log2(e)
  Bf16* out;

  // How tokens and heads make up the items of the grid; one of the first two is 1.
  int group_tokens, head_groups;
  // Scratch of a call that spreads its items over several clusters.
  float* values;  // [items, chunks, 8, rows, 64]
  float2* stats;  // [items, chunks, 8, rows]: maximum, sum
  int max_chunks;
  uint32_t* tickets;  // [items, 8]; of a call that streams [blocks, 4]
  // A call that streams (mla_absorbed_stream.cu) has values of nodes, f32[nodes, 8, 256, 4], and stats [nodes, 16].
  int max_nodes;
  bool leaves_parts;  // as values and stats, for another kernel (absorbed_parts.cuh)

  // The first token of a sequence; of `seqs`: one past the last token.
  __device__ __forceinline__ int first_token(int seq) const {
    return query_start == nullptr ? seq : query_start[seq];
  }
};

// What both kernels take as it is in the call; how tokens and heads make up items is theirs.
AbsorbedParams absorbed_params(const ops::MlaAbsorbedArgs& args);

// One block's query rows.
struct QueryGroup {
  int seq = -1;  // -1: there is no such item
  int first_token = 0, num_tokens = 0;
  int first_head = 0, num_heads = 0;
  int first_query = 0;  // of the sequence's query tokens, the first one's index
  int num_queries = 0, kv_len = 0;
  bool is_tree = false;

  __device__ int num_rows() const { return num_tokens * num_heads; }
  // The row of the cache that query 0 of the sequence stands in.
  __device__ int query_row() const { return kv_len - num_queries; }
  // One past the last row that one of the queries may see.
  __device__ int end() const { return is_tree ? kv_len : query_row() + first_query + num_tokens; }
  // The first row that one of the queries does not see.
  __device__ int first_partial_row() const {
    return is_tree ? query_row() : query_row() + first_query + 1;
  }
  // Row `row` of the group, in the order of q_latent and out.
  __device__ int64_t token_head(int row, int heads) const {
    return int64_t{first_token + row / num_heads} * heads + first_head + row % num_heads;
  }
};

// REQUIRES: row < the group's end().
__device__ __forceinline__ bool is_visible(const QueryGroup& group, int query, uint64_t mask,
                                           int row) {
  const int j = row - group.query_row();
  if (!group.is_tree) return j <= query;
  return j < 0 || j == query || ((mask >> (j & (ops::kMaxTreeTokens - 1))) & 1) != 0;
}

// The sequence of item `item`, and how many items are its before this one. Each warp looks at all sequences, 32
// at a time; the loads of several rounds are under way together.
__device__ __forceinline__ int find_sequence(const AbsorbedParams& p, int item, int& before) {
  const int lane = threadIdx.x % 32;
  int found = -1, items = 0;
#pragma unroll 4
  for (int base = 0; base < p.seqs; base += 32) {
    const int seq = base + lane;
    const int queries = seq < p.seqs ? p.first_token(seq + 1) - p.first_token(seq) : 0;
    const int mine = (queries + p.group_tokens - 1) / p.group_tokens * p.head_groups;
    int sum = mine;  // of this lane's sequences and those before it
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, lanes);
      if (lane >= lanes) sum += other;
    }
    const int at = item - items - (sum - mine);
    const uint32_t holds = __ballot_sync(0xffffffffu, at >= 0 && at < mine);
    if (holds != 0) {
      const int owner = __ffs(static_cast<int>(holds)) - 1;
      found = base + owner;
      before = __shfl_sync(0xffffffffu, at, owner);
    }
    items += __shfl_sync(0xffffffffu, sum, 31);
  }
  return found;
}

// Item `index` of sequence `seq`, whose query tokens are [begin, end).
__device__ __forceinline__ QueryGroup make_group(const AbsorbedParams& p, int seq, int index,
                                                 int begin, int end, int kv_len, int rows) {
  QueryGroup group;
  group.seq = seq;
  group.kv_len = kv_len;
  group.num_queries = end - begin;
  group.is_tree = p.tree_mask != nullptr && group.num_queries <= ops::kMaxTreeTokens;
  const int tokens_before = p.head_groups == 1 ? index : index / p.head_groups;
  group.first_query = tokens_before * p.group_tokens;
  group.first_token = begin + group.first_query;
  group.num_tokens = min(p.group_tokens, group.num_queries - group.first_query);
  group.first_head = (index - tokens_before * p.head_groups) * rows;
  group.num_heads = min(p.heads - group.first_head, p.head_groups == 1 ? p.heads : rows);
  return group;
}

__device__ __forceinline__ QueryGroup find_group(const AbsorbedParams& p, int item, int rows) {
  // A step that decodes one token of each sequence: the token's number is the sequence's.
  const int guess = item / p.head_groups;
  if (p.group_tokens == 1 && guess < p.seqs) {
    const int begin = p.first_token(guess), end = p.first_token(guess + 1);
    const int kv_len = p.kv_len[guess];
    if (begin == guess && end == guess + 1)
      return make_group(p, guess, item % p.head_groups, begin, end, kv_len, rows);
  }
  int index = 0;
  const int seq = find_sequence(p, item, index);
  if (seq < 0) return {};
  return make_group(p, seq, index, p.first_token(seq), p.first_token(seq + 1), p.kv_len[seq], rows);
}

// The flat row of a sequence's row.
__device__ __forceinline__ int32_t kv_row_at(const AbsorbedParams& p, int seq, int row) {
  const auto block =
      static_cast<int>(static_cast<uint32_t>(row) / static_cast<uint32_t>(p.block_tokens));
  return p.block_tables[seq * p.table_stride + block] * p.block_tokens + row -
         block * p.block_tokens;
}

}  // namespace fathom::cuda
