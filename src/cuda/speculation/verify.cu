// draft_inputs, draft_rows, accept_drafts, move_rows: a few words per slice or row, bound by latency; move_rows reads
// and writes the rows that move. Grid: one block per slice (draft_rows: one thread per row; move_rows: one block per
// layer and slice). Shared: the drafts of a slot and what was sampled at their rows. Slices of slot -1 change no slot.

#include "ops/verify.h"

#include "base/rng.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/speculation/ops.h"
#include "ops/mla.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128, kMoveThreads = 64;
constexpr int kMaxNodes = ops::kMaxTreeTokens;  // the last token and its drafts

// The state of slots (ops/step.h, ops/verify.h).
struct SlotParams {
  int32_t *last_token, *length, *num_drafts;
  const int32_t *max_rows, *drafts, *parents;
  int max_drafts;
};

SlotParams params_of(const ops::DraftSlots& slots) {
  return {.last_token = slots.last_token.as<int32_t>(),
          .length = slots.length.as<int32_t>(),
          .num_drafts = slots.num_drafts.as<int32_t>(),
          .max_rows = slots.max_rows.as<int32_t>(),
          .drafts = slots.drafts.as<int32_t>(),
          .parents = slots.parents.as<int32_t>(),
          .max_drafts = static_cast<int>(slots.drafts.dim(1))};
}

// Active query tokens of a slice that goes on from its slot.
__device__ __forceinline__ int num_active(const SlotParams& p, int slot, int num_wanted) {
  const int room = max(p.max_rows[slot] - p.length[slot], 0);
  return min(min(num_wanted - 1, p.num_drafts[slot]) + 1, room);
}

struct InputParams {
  SlotParams slots;
  const int32_t *slice_slot, *query_start, *num_wanted;
  int32_t *token_ids, *positions;
  int64_t* kv_rows;
  uint64_t* tree_mask;  // null allowed
};

__global__ void __launch_bounds__(kThreads) complete_inputs(const __grid_constant__ InputParams p) {
  let_next_start();
  wait_for_previous();
  const int slice = static_cast<int>(blockIdx.x);
  const int slot = p.slice_slot[slice], num_wanted = p.num_wanted[slice];
  if (slot < 0 || num_wanted == 0) return;
  const int begin = p.query_start[slice], num_tokens = p.query_start[slice + 1] - begin;
  const int active = num_active(p.slots, slot, min(num_wanted, num_tokens));
  const int32_t* const parents = p.slots.parents + int64_t{slot} * p.slots.max_drafts;
  const int length = p.slots.length[slot];
  for (int i = static_cast<int>(threadIdx.x); i < num_tokens; i += kThreads) {
    const bool is_active = i < active;
    uint64_t above = 1;
    int depth = 0;
    for (int draft = i - 1; is_active && draft >= 0; draft = parents[draft]) {
      above |= uint64_t{2} << draft;
      ++depth;
    }
    if (i > 0) p.positions[begin + i] = length + depth;
    if (i > 0 || !is_active)
      p.token_ids[begin + i] =
          is_active ? p.slots.drafts[int64_t{slot} * p.slots.max_drafts + i - 1] : 0;
    if (!is_active) p.kv_rows[begin + i] = -1;
    if (p.tree_mask != nullptr)
      p.tree_mask[begin + i] = is_active || i == 0 ? above : uint64_t{1} << (i & (kMaxNodes - 1));
  }
}

struct RowParams {
  const int32_t *drafts, *parents, *positions, *row_tokens, *row_slot, *row_draft;
  int32_t *position, *paths;
  int max_drafts, max_path, rows;
};

__global__ void __launch_bounds__(kThreads) complete_rows(const __grid_constant__ RowParams p) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= p.rows) return;
  p.position[row] = p.positions[p.row_tokens[row]] + 1;
  const int slot = p.row_slot[row];
  int length = 0;
  for (int draft = slot < 0 ? -1 : p.row_draft[row]; draft >= 0 && length < p.max_path; ++length) {
    p.paths[int64_t{row} * p.max_path + length] = p.drafts[int64_t{slot} * p.max_drafts + draft];
    draft = p.parents[int64_t{slot} * p.max_drafts + draft];
  }
  for (; length < p.max_path; ++length) p.paths[int64_t{row} * p.max_path + length] = -1;
}

struct AcceptParams {
  SlotParams slots;
  const int32_t *slice_slot, *query_start, *num_wanted, *first_row, *penalty_row, *sampled,
      *next_given;
  int32_t* counts;  // null allowed
  const int64_t* kv_rows;
  int32_t *num_out, *out_rows, *out_tokens, *num_verified, *first_position, *source, *next_ids,
      *draft_positions, *draft_row;
  int64_t *draft_kv_rows, *draft_row_kv;
  int64_t vocab_size;
  float agreement;
};

// Nodes of a slice: 0 is the last token, i + 1 draft i.
struct Nodes {
  int32_t drafts[kMaxNodes], parents[kMaxNodes], sampled[kMaxNodes];
  int num_rows, last_token;
};

struct SliceAt {
  int slice, slot, begin, length;
};

__device__ __forceinline__ void come_out(const AcceptParams& p, const SliceAt& at, int token) {
  p.slots.last_token[at.slot] = token;
  const int penalty_row = p.penalty_row[at.slice];
  // Bit 31 (in the prompt) stays as it is: the count below it never reaches 2^31.
  if (penalty_row >= 0 && p.counts != nullptr) ++p.counts[penalty_row * p.vocab_size + token];
}

// Row length + k of the slot is that of query token `from`.
__device__ __forceinline__ void stays(const AcceptParams& p, const SliceAt& at, int k, int from,
                                      int next_id) {
  p.source[at.begin + k] = at.begin + from;
  p.next_ids[at.begin + k] = next_id;
  p.draft_positions[at.begin + k] = at.length + k;
  p.draft_kv_rows[at.begin + k] = p.kv_rows[at.begin + k];
}

__device__ int next_node(const AcceptParams& p, const SliceAt& at, const Nodes& nodes, int node,
                         int active, int& token) {
  for (int draft = 0; draft < active - 1; ++draft) {
    if (nodes.parents[draft] != node - 1) continue;
    if (p.agreement < 0) {
      if (nodes.drafts[draft] == token) return draft + 1;
      continue;
    }
    const auto position = static_cast<uint64_t>(at.length + node);
    if (uniform(philox(static_cast<uint64_t>(at.slot), 1, position)[0]) >= p.agreement) return -1;
    token = nodes.drafts[draft];
    return draft + 1;
  }
  return -1;
}

// By one thread. Returns the rows that stay.
__device__ int take_drafts(const AcceptParams& p, const SliceAt& at, const Nodes& nodes,
                           int active) {
  if (active == 0) return 0;
  p.num_verified[at.slice] = active - 1;
  int count = 0;
  for (int node = 0, next = 0; node >= 0; node = next) {
    int token = nodes.sampled[node];
    if (token < 0) break;
    next = next_node(p, at, nodes, node, active, token);
    p.out_rows[at.begin + count] = p.first_row[at.slice] + node;
    p.out_tokens[at.begin + count] = token;
    stays(p, at, count++, node, token);
    come_out(p, at, token);
  }
  p.num_out[at.slice] = count > 0 ? count : -1;
  if (count > 0) return count;
  stays(p, at, 0, 0, p.slots.last_token[at.slot]);
  return 1;
}

__device__ __forceinline__ void take_given(const AcceptParams& p, const SliceAt& at, int num_tokens,
                                           Nodes& nodes) {
  if (threadIdx.x == 0) {
    const int row = p.first_row[at.slice];
    if (row >= 0 && p.sampled[row] >= 0) come_out(p, at, p.sampled[row]);
    nodes.last_token = p.slots.last_token[at.slot];
    nodes.num_rows = num_tokens;
  }
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.x); k < num_tokens; k += kThreads) {
    const int given = p.next_given[at.begin + k];
    stays(p, at, k, k, given >= 0 ? given : nodes.last_token);
  }
}

__global__ void __launch_bounds__(kThreads) accept(const __grid_constant__ AcceptParams p) {
  __shared__ Nodes nodes;
  let_next_start();
  wait_for_previous();
  const int slice = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int slot = p.slice_slot[slice], begin = p.query_start[slice];
  const int num_tokens = p.query_start[slice + 1] - begin;
  const SliceAt at{slice, slot, begin, slot < 0 ? 0 : p.slots.length[slot]};
  if (thread == 0) {
    p.num_out[slice] = p.num_verified[slice] = nodes.num_rows = 0;
    p.first_position[slice] = at.length;
  }
  if (slot >= 0 && p.num_wanted[slice] > 0) {
    const int active = num_active(p.slots, slot, min(p.num_wanted[slice], num_tokens));
    for (int i = thread; i < active; i += kThreads) {
      nodes.sampled[i] = p.sampled[p.first_row[slice] + i];
      if (i + 1 == active) continue;
      nodes.drafts[i] = p.slots.drafts[int64_t{slot} * p.slots.max_drafts + i];
      nodes.parents[i] = p.slots.parents[int64_t{slot} * p.slots.max_drafts + i];
    }
    __syncthreads();
    if (thread == 0) nodes.num_rows = take_drafts(p, at, nodes, active);
  } else if (slot >= 0) {
    take_given(p, at, num_tokens, nodes);
  }
  __syncthreads();
  for (int k = nodes.num_rows + thread; k < num_tokens; k += kThreads) {
    p.source[begin + k] = begin + k;
    p.next_ids[begin + k] = p.draft_positions[begin + k] = 0;
    p.draft_kv_rows[begin + k] = -1;
  }
  if (thread != 0) return;
  const int draft_row = begin + max(nodes.num_rows, 1) - 1;
  p.draft_row[slice] = draft_row;
  // As `stays` has written it, in whichever thread.
  p.draft_row_kv[slice] = nodes.num_rows > 0 ? p.kv_rows[draft_row] : -1;
  if (slot < 0) return;
  p.slots.length[slot] = at.length + nodes.num_rows;
  p.slots.num_drafts[slot] = 0;
}

struct MoveParams {
  char* rows;  // [layers][layer_bytes]
  const int32_t *query_start, *source;
  const int64_t *from, *to;
  int64_t layer_bytes;
  int row_bytes;
};

// Every thread has its own part of each row, so that what it moves first it may overwrite later.
template <class Word>
__global__ void __launch_bounds__(kMoveThreads) move(const __grid_constant__ MoveParams p) {
  let_next_start();
  wait_for_previous();
  char* const rows = p.rows + blockIdx.y * p.layer_bytes;
  const int words = p.row_bytes / static_cast<int>(sizeof(Word));
  for (int t = p.query_start[blockIdx.x]; t < p.query_start[blockIdx.x + 1]; ++t) {
    const int source = p.source[t];
    if (p.to[t] < 0 || source == t) continue;
    const auto* const from = reinterpret_cast<const Word*>(rows + p.from[source] * p.row_bytes);
    auto* const to = reinterpret_cast<Word*>(rows + p.from[t] * p.row_bytes);
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kMoveThreads) to[i] = from[i];
  }
}

}  // namespace

void draft_inputs(const ops::DraftInputsArgs& args, ops::Stream& stream) {
  const InputParams params{
      .slots = params_of(args.slots),
      .slice_slot = args.slice_slot.as<int32_t>(),
      .query_start = args.query_start.as<int32_t>(),
      .num_wanted = args.num_wanted.as<int32_t>(),
      .token_ids = args.token_ids.as<int32_t>(),
      .positions = args.positions.as<int32_t>(),
      .kv_rows = args.kv_rows.as<int64_t>(),
      .tree_mask = args.tree_mask.is_null() ? nullptr : args.tree_mask.as<uint64_t>()};
  launch(complete_inputs,
         {.grid = static_cast<unsigned>(args.slice_slot.dim(0)), .block = kThreads}, stream,
         params);
}

void draft_rows(const ops::DraftRowsArgs& args, ops::Stream& stream) {
  const RowParams params{.drafts = args.slots.drafts.as<int32_t>(),
                         .parents = args.slots.parents.as<int32_t>(),
                         .positions = args.positions.as<int32_t>(),
                         .row_tokens = args.row_tokens.as<int32_t>(),
                         .row_slot = args.row_slot.as<int32_t>(),
                         .row_draft = args.row_draft.as<int32_t>(),
                         .position = args.position.as<int32_t>(),
                         .paths = args.paths.as<int32_t>(),
                         .max_drafts = static_cast<int>(args.slots.drafts.dim(1)),
                         .max_path = static_cast<int>(args.paths.dim(1)),
                         .rows = static_cast<int>(args.position.dim(0))};
  launch(complete_rows, {.grid = num_tiles(params.rows, kThreads), .block = kThreads}, stream,
         params);
}

void accept_drafts(const ops::AcceptDraftsArgs& args, ops::Stream& stream) {
  AcceptParams params{.slots = params_of(args.slots),
                      .slice_slot = args.slice_slot.as<int32_t>(),
                      .query_start = args.query_start.as<int32_t>(),
                      .num_wanted = args.num_wanted.as<int32_t>(),
                      .first_row = args.first_row.as<int32_t>(),
                      .penalty_row = args.penalty_row.as<int32_t>(),
                      .sampled = args.sampled.as<int32_t>(),
                      .next_given = args.next_given.as<int32_t>(),
                      .counts = nullptr,
                      .kv_rows = args.kv_rows.as<int64_t>(),
                      .num_out = args.num_out.as<int32_t>(),
                      .out_rows = args.out_rows.as<int32_t>(),
                      .out_tokens = args.out_tokens.as<int32_t>(),
                      .num_verified = args.num_verified.as<int32_t>(),
                      .first_position = args.first_position.as<int32_t>(),
                      .source = args.source.as<int32_t>(),
                      .next_ids = args.next_ids.as<int32_t>(),
                      .draft_positions = args.draft_positions.as<int32_t>(),
                      .draft_row = args.draft_row.as<int32_t>(),
                      .draft_kv_rows = args.draft_kv_rows.as<int64_t>(),
                      .draft_row_kv = args.draft_row_kv.as<int64_t>(),
                      .vocab_size = 0,
                      .agreement = args.agreement};
  if (!args.counts.is_null()) {
    params.counts = args.counts.as<int32_t>();
    params.vocab_size = args.counts.dim(1);
  }
  FATHOM_CHECK(params.slots.max_drafts < kMaxNodes, params.slots.max_drafts << " drafts");
  launch(accept, {.grid = static_cast<unsigned>(args.slice_slot.dim(0)), .block = kThreads}, stream,
         params);
}

void move_rows(const ops::MoveRowsArgs& args, ops::Stream& stream) {
  const MoveParams params{.rows = static_cast<char*>(args.rows.data()),
                          .query_start = args.query_start.as<int32_t>(),
                          .source = args.source.as<int32_t>(),
                          .from = args.from.as<int64_t>(),
                          .to = args.to.as<int64_t>(),
                          .layer_bytes = args.rows.stride(0),
                          .row_bytes = static_cast<int>(args.rows.dim(3))};
  const LaunchShape shape{.grid = {static_cast<unsigned>(args.query_start.dim(0) - 1),
                                   static_cast<unsigned>(args.rows.dim(0))},
                          .block = kMoveThreads};
  const bool aligned =
      params.row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(params.rows) % 16 == 0;
  if (aligned) return launch(move<uint4>, shape, stream, params);
  launch(move<uint8_t>, shape, stream, params);
}

}  // namespace fathom::cuda
