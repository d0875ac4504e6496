// grow_drafts: one block per slice; its threads share the nodes of a level and find their ranks by counting. Bound by
// latency: some hundred nodes at most, all in shared memory. select_rows: reads and writes each row once; one block per
// row.

#include "ops/draft.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/speculation/ops.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

struct GrowParams {
  const int32_t *length, *block_tables, *slice_slot, *num_asked, *top_ids;
  const float* top_logprobs;
  int32_t *drafts, *parents, *num_drafts;
  int32_t *node_token, *node_parent, *fed;
  float* node_score;
  int32_t *out_drafts, *out_parents, *out_count;
  int32_t *token_ids, *positions, *kv_len, *tables, *source, *logit_rows;
  int64_t* kv_rows;
  uint64_t* tree_mask;
  int64_t max_blocks, first_spare_block;
  int level, top_k, max_nodes, max_fed, max_drafts, block_tokens;
  bool is_last;

  __device__ int begin() const { return level == 1 ? 0 : top_k + (level - 2) * top_k * top_k; }
  __device__ int end() const { return top_k + (level - 1) * top_k * top_k; }
  // Query tokens of a slice in the pass that follows.
  __device__ int width() const { return top_k == 1 ? 1 : top_k * level; }
};

// The tree of one slice, in global memory.
struct Tree {
  int slice, slot;
  int32_t *token, *parent, *fed;
  float* score;
};

__device__ __forceinline__ void add_nodes(const GrowParams& p, const Tree& tree) {
  const int fan = p.level == 1 ? 1 : p.top_k;
  for (int i = static_cast<int>(threadIdx.x); i < fan * p.top_k; i += kThreads) {
    const int node = p.begin() + i, above = i / p.top_k;
    const int parent = p.level == 1 ? -1 : (p.level - 2) * p.top_k + above;
    const float base = parent < 0 ? 0.0f : tree.score[tree.fed[parent]];
    const int64_t said = (int64_t{tree.slice} * fan + above) * p.top_k + i % p.top_k;
    const int id = p.top_ids[said];
    const float logprob = p.top_logprobs[said];
    tree.parent[node] = parent;
    tree.token[node] = max(id, 0);
    // Rounding must not lift a child above its parent.
    tree.score[node] = id >= 0 && logprob > -INFINITY ? base + fminf(logprob, 0.0f) : -INFINITY;
  }
}

// Ranks of nodes [begin, end) among themselves: by falling score, ties by index.
__device__ __forceinline__ void find_ranks(const Tree& tree, int begin, int end, float* scores,
                                           int32_t* ranks) {
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads)
    scores[i] = tree.score[i];
  __syncthreads();
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    int rank = 0;
    for (int j = begin; j < end; ++j)
      rank += scores[j] > scores[i] || (scores[j] == scores[i] && j < i) ? 1 : 0;
    ranks[i] = rank;
  }
  __syncthreads();
}

__device__ __forceinline__ void choose(const GrowParams& p, const Tree& tree, const float* scores,
                                       const int32_t* ranks, int32_t* count) {
  const int asked = tree.slot < 0 ? 0 : p.num_asked[tree.slice];
  const int limit = min(p.max_drafts, asked);
  const int64_t out = int64_t{tree.slice} * p.max_drafts;
  for (int i = static_cast<int>(threadIdx.x); i < p.max_drafts; i += kThreads) {
    p.out_drafts[out + i] = 0;
    p.out_parents[out + i] = -1;
  }
  if (threadIdx.x == 0) *count = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.end(); i += kThreads) {
    if (ranks[i] >= limit || !(scores[i] > -INFINITY)) continue;
    p.out_drafts[out + ranks[i]] = tree.token[i];
    p.out_parents[out + ranks[i]] = tree.parent[i] < 0 ? -1 : ranks[tree.fed[tree.parent[i]]];
    atomicAdd(count, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) p.out_count[tree.slice] = *count;
  if (tree.slot < 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < p.max_drafts; i += kThreads) {
    p.drafts[int64_t{tree.slot} * p.max_drafts + i] = p.out_drafts[out + i];
    p.parents[int64_t{tree.slot} * p.max_drafts + i] = p.out_parents[out + i];
  }
  if (threadIdx.x == 0) p.num_drafts[tree.slot] = *count;
}

__device__ __forceinline__ void write_table(const GrowParams& p, const Tree& tree, bool asks) {
  int32_t* const table = p.tables + tree.slice * p.max_blocks;
  const int64_t spare = asks ? (p.length[tree.slot] - 1) / p.block_tokens + 1 : p.max_blocks;
  for (int64_t i = threadIdx.x; i < p.max_blocks; i += kThreads)
    table[i] = !asks        ? 0
               : i == spare ? static_cast<int32_t>(p.first_spare_block + tree.slot)
                            : p.block_tables[tree.slot * p.max_blocks + i];
}

__device__ __forceinline__ void write_token(const GrowParams& p, const Tree& tree, int64_t token,
                                            int node, int place, int depth) {
  const int length = p.length[tree.slot], row = length + place, block = row / p.block_tokens;
  const int64_t block_id = block == (length - 1) / p.block_tokens
                               ? p.block_tables[tree.slot * p.max_blocks + block]
                               : p.first_spare_block + tree.slot;
  p.token_ids[token] = tree.token[node];
  p.positions[token] = length + depth - 1;
  p.kv_rows[token] = block_id * p.block_tokens + row % p.block_tokens;
}

// The next pass of a slice: the i-th node that was fed is query token i; a chain has the newest only.
__device__ __forceinline__ void write_inputs(const GrowParams& p, const Tree& tree, bool asks) {
  const int width = p.width(), before = width - p.top_k;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const int64_t token = int64_t{tree.slice} * width + i;
    const int place = p.top_k == 1 ? p.level - 1 : i;
    if (!asks) {
      p.token_ids[token] = p.positions[token] = 0;
      p.kv_rows[token] = -1;
    } else {
      write_token(p, tree, token, tree.fed[place], place, place / p.top_k + 1);
    }
    if (p.top_k == 1) continue;
    const int above = asks ? tree.parent[tree.fed[i]] : -1;
    uint64_t mask = asks ? uint64_t{1} << i : 0;
    for (int up = above; up >= 0; up = tree.parent[tree.fed[up]]) mask |= uint64_t{1} << up;
    p.tree_mask[token] = mask;
    p.source[token] = above < 0 ? -1 - tree.slice : tree.slice * before + above;
    if (i < p.top_k) p.logit_rows[tree.slice * p.top_k + i] = tree.slice * width + before + i;
  }
  if (threadIdx.x == 0) p.kv_len[tree.slice] = asks ? p.length[tree.slot] + p.level * p.top_k : 0;
}

__global__ void __launch_bounds__(kThreads) grow(const __grid_constant__ GrowParams p) {
  extern __shared__ float scores[];  // [max_nodes], then their ranks
  __shared__ int32_t count;
  auto* const ranks = reinterpret_cast<int32_t*>(scores + p.max_nodes);
  let_next_start();
  wait_for_previous();
  const int slice = static_cast<int>(blockIdx.x);
  const int64_t nodes = int64_t{slice} * p.max_nodes;
  const Tree tree{.slice = slice,
                  .slot = p.slice_slot[slice],
                  .token = p.node_token + nodes,
                  .parent = p.node_parent + nodes,
                  .fed = p.fed + int64_t{slice} * p.max_fed,
                  .score = p.node_score + nodes};
  add_nodes(p, tree);
  __syncthreads();
  find_ranks(tree, p.is_last ? 0 : p.begin(), p.end(), scores, ranks);
  if (p.is_last) return choose(p, tree, scores, ranks, &count);
  for (int i = p.begin() + static_cast<int>(threadIdx.x); i < p.end(); i += kThreads)
    if (ranks[i] < p.top_k) tree.fed[(p.level - 1) * p.top_k + ranks[i]] = i;
  __syncthreads();
  const bool asks = tree.slot >= 0 && p.num_asked[slice] > 0;
  write_table(p, tree, asks);
  write_inputs(p, tree, asks);
}

struct SelectParams {
  const char *a, *b;
  const int32_t* rows;
  char* out;
  int row_bytes;
};

template <class Word>
__global__ void __launch_bounds__(kThreads) select(const __grid_constant__ SelectParams p) {
  let_next_start();
  wait_for_previous();
  const int row = p.rows[blockIdx.x];
  const char* const from =
      row >= 0 ? p.a + int64_t{row} * p.row_bytes : p.b + int64_t{-1 - row} * p.row_bytes;
  char* const to = p.out + int64_t{blockIdx.x} * p.row_bytes;
  const int words = p.row_bytes / static_cast<int>(sizeof(Word));
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

}  // namespace

void grow_drafts(const ops::GrowDraftsArgs& args, ops::Stream& stream) {
  GrowParams params{};
  params.length = args.slots.length.as<int32_t>();
  params.block_tables = args.block_tables.as<int32_t>();
  params.slice_slot = args.slice_slot.as<int32_t>();
  params.num_asked = args.num_asked.as<int32_t>();
  params.top_ids = args.top_ids.as<int32_t>();
  params.top_logprobs = args.top_logprobs.as<float>();
  params.drafts = args.slots.drafts.as<int32_t>();
  params.parents = args.slots.parents.as<int32_t>();
  params.num_drafts = args.slots.num_drafts.as<int32_t>();
  params.node_token = args.node_token.as<int32_t>();
  params.node_parent = args.node_parent.as<int32_t>();
  params.fed = args.fed.as<int32_t>();
  params.node_score = args.node_score.as<float>();
  params.out_drafts = args.out_drafts.as<int32_t>();
  params.out_parents = args.out_parents.as<int32_t>();
  params.out_count = args.out_count.as<int32_t>();
  params.max_blocks = args.block_tables.dim(1);
  params.first_spare_block = args.first_spare_block;
  params.level = args.level;
  params.top_k = args.top_k;
  params.max_nodes = static_cast<int>(args.node_token.dim(1));
  params.max_fed = static_cast<int>(args.fed.dim(1));
  params.max_drafts = static_cast<int>(args.slots.drafts.dim(1));
  params.block_tokens = args.block_tokens;
  params.is_last = args.is_last;
  if (!args.is_last) {
    params.token_ids = args.token_ids.as<int32_t>();
    params.positions = args.positions.as<int32_t>();
    params.kv_len = args.kv_len.as<int32_t>();
    params.tables = args.tables.as<int32_t>();
    params.kv_rows = args.kv_rows.as<int64_t>();
  }
  if (!args.is_last && args.top_k > 1) {
    params.tree_mask = args.tree_mask.as<uint64_t>();
    params.source = args.source.as<int32_t>();
    params.logit_rows = args.logit_rows.as<int32_t>();
  }
  launch(grow,
         {.grid = static_cast<unsigned>(args.slice_slot.dim(0)),
          .block = kThreads,
          .shared_bytes = params.max_nodes * static_cast<int>(sizeof(float) + sizeof(int32_t))},
         stream, params);
}

void select_rows(const ops::SelectRowsArgs& args, ops::Stream& stream) {
  const SelectParams params{
      .a = static_cast<const char*>(args.a.data()),
      .b = static_cast<const char*>(args.b.data()),
      .rows = args.rows.as<int32_t>(),
      .out = static_cast<char*>(args.out.data()),
      .row_bytes = static_cast<int>(args.out.dim(1) * tensor::dtype_bytes(args.out.dtype()))};
  const LaunchShape shape{.grid = static_cast<unsigned>(args.out.dim(0)), .block = kThreads};
  bool aligned = params.row_bytes % 16 == 0;
  for (const void* data : {args.a.data(), args.b.data(), args.out.data()})
    aligned &= reinterpret_cast<uintptr_t>(data) % 16 == 0;
  if (aligned) return launch(select<uint4>, shape, stream, params);
  launch(select<uint16_t>, shape, stream, params);
}

}  // namespace fathom::cuda
