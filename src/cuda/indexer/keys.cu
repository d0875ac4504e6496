// index_append, index_query and both in one launch: a warp takes a row of index_head_dim values, queries of the
// published size in registers, all others through its shared memory. Bound by the launch at decode, of prompts by
// instructions: 64 heads a token, seven levels of the transform each. In a step of few tokens two more warps for each
// row make its head's weight, a product of 7168 values, of which they have the matrix's in registers before the step's
// are there.
//
// Shared memory: 4 bytes a value, of 4 rows.

#include <cmath>

#include "cuda/indexer/index_rows.cuh"
#include "cuda/indexer/ops.h"
#include "cuda/indexer/query_step.h"
#include "cuda/linear/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/index.h"
#include "tuned/choice.h"

namespace fathom::cuda {
namespace {

constexpr int kRowWarps = 4;
// Queries of a token that a warp has at once in larger steps: their shuffles overlap.
constexpr int kLaneRows = 4;
// That make the weight of a row's head, each of half of the product; vectors of 16 bytes that a lane has at most.
constexpr int kDotWarps = 2, kDotVectors = 14;

struct IndexQueryParams {
  const Bf16* q;  // [tokens, heads, dim]
  const float* w;
  const float* table;
  F8E4M3* out;
  float* weights;
  int64_t rows;  // tokens * heads
  int heads, dim, rope_dim;
  float factor;
  bool has_lane_rows;  // LaneRow takes them, and heads are a multiple of kLaneRows
};

// Returns the scale.
__device__ __forceinline__ float prepare_query(const IndexQueryParams& p, int64_t at,
                                               float* shared) {
  const float* const table = p.table + static_cast<int>(at) / p.heads * p.rope_dim;
  if (p.has_lane_rows) {
    const LaneRow::Angles angles = LaneRow::angles_of(table);
    LaneRow row;
    row.load(p.q + at * LaneRow::kDim);
    row.rotate(angles);
    row.transform();
    return row.quantise(p.out + at * LaneRow::kDim);
  }
  const Angles angles(table, p.rope_dim);
  WarpRow row(shared, p.dim);
  for (int i = row.lane; i < p.dim; i += 32) row.x[i] = cuda::to_float(p.q[at * p.dim + i]);
  __syncwarp();
  row.rotate(angles);
  row.transform();
  return row.quantise(p.out + at * p.dim);
}

// The queries from row `first` on, and their weights.
__device__ __forceinline__ void prepare_lane_rows(const IndexQueryParams& p, int64_t first) {
  const int lane = LaneRow::lane();
  const LaneRow::Angles angles =
      LaneRow::angles_of(p.table + static_cast<int>(first) / p.heads * LaneRow::kRope);
  LaneRow rows[kLaneRows];
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) rows[i].load(p.q + (first + i) * LaneRow::kDim);
  const float w = lane < kLaneRows ? p.w[first + lane] : 0.0f;
#pragma unroll
  for (LaneRow& row : rows) {
    row.rotate(angles);
    row.transform_within();
  }
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
#pragma unroll
    for (LaneRow& row : rows) row.transform_between(lanes);
  }
  float scale = 0.0f;
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    const float of_row = rows[i].quantise(p.out + (first + i) * LaneRow::kDim);
    if (lane == i) scale = of_row;
  }
  if (lane < kLaneRows) p.weights[first + lane] = w * p.factor * scale;
}

// weights_proj and what it is multiplied with.
struct HeadWeightParams {
  const Bf16* x;             // [tokens, vectors * 8], strided
  const Bf16* weights_proj;  // [heads, vectors * 8]
  int64_t x_stride;
  int vectors;
};

// A warp's half of the product for the weight of query row `at`.
struct HeadWeight {
  uint4 weights[kDotVectors];
  int first, end;  // vectors, this lane's every 32nd

  __device__ __forceinline__ HeadWeight(const HeadWeightParams& p, int head, int half)
      : first(half * (p.vectors / kDotWarps) + static_cast<int>(threadIdx.x) % 32),
        end((half + 1) * (p.vectors / kDotWarps)) {
    const auto* const from =
        reinterpret_cast<const uint4*>(p.weights_proj) + int64_t{head} * p.vectors;
#pragma unroll
    for (int i = 0; i < kDotVectors; ++i)
      weights[i] = first + i * 32 < end ? from[first + i * 32] : uint4{};
  }
  __device__ __forceinline__ float times(const HeadWeightParams& p, int64_t token) const {
    const auto* const from = reinterpret_cast<const uint4*>(p.x + token * p.x_stride);
    uint4 x[kDotVectors];
#pragma unroll
    for (int i = 0; i < kDotVectors; ++i)
      x[i] = first + i * 32 < end ? from[first + i * 32] : uint4{};
    float low = 0.0f, high = 0.0f;
    const auto add = [&](uint32_t a, uint32_t b) {
      low = __fmaf_rn(bf16x2_low(a), bf16x2_low(b), low);
      high = __fmaf_rn(bf16x2_high(a), bf16x2_high(b), high);
    };
#pragma unroll
    for (int i = 0; i < kDotVectors; ++i) {
      add(x[i].x, weights[i].x);
      add(x[i].y, weights[i].y);
      add(x[i].z, weights[i].z);
      add(x[i].w, weights[i].w);
    }
    return warp_sum(low + high);
  }
};

// The number of the warp, of all.
__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32;
}

// Keys first: they take longer. An operator alone has no rows of the other.
__global__ void __launch_bounds__(kRowWarps * 32)
    index_append_query_kernel(const __grid_constant__ IndexAppendParams keys,
                              const __grid_constant__ IndexQueryParams queries) {
  extern __shared__ float shared[];
  const int64_t at = warp_of_grid();
  if (at < keys.tokens) ask_for_norm(keys);
  wait_for_previous();
  let_next_start();  // behind the wait: index_scores reads what is settled before its own (ops/index.h)
  if (at < keys.tokens) return append_key(keys, at, shared);
  const int64_t query = at - keys.tokens;
  if (queries.has_lane_rows) {
    if (query * kLaneRows < queries.rows) prepare_lane_rows(queries, query * kLaneRows);
  } else if (query < queries.rows) {
    const float scale = prepare_query(queries, query, shared);
    if (threadIdx.x % 32 == 0) queries.weights[query] = queries.w[query] * queries.factor * scale;
  }
}

// The same, and the product that makes w.
__global__ void __launch_bounds__(kRowWarps*(1 + kDotWarps) * 32)
    index_step_kernel(const __grid_constant__ IndexAppendParams keys,
                      const __grid_constant__ IndexQueryParams queries,
                      const __grid_constant__ HeadWeightParams heads) {
  extern __shared__ float shared[];
  __shared__ float parts[kRowWarps][kDotWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32, dot = warp - kRowWarps;
  const int in_block = dot < 0 ? warp : dot / kDotWarps;
  const int64_t at = int64_t{blockIdx.x} * kRowWarps + in_block, query = at - keys.tokens;
  const bool is_query = query >= 0 && query < queries.rows;
  float scale = 0.0f;
  if (dot >= 0) {
    const HeadWeight weight(heads, is_query ? static_cast<int>(query % queries.heads) : 0,
                            dot % kDotWarps);
    wait_for_previous();
    let_next_start();
    const float part = weight.times(heads, is_query ? query / queries.heads : 0);
    if (threadIdx.x % 32 == 0) parts[in_block][dot % kDotWarps] = part;
  } else {
    if (at < keys.tokens) ask_for_norm(keys);
    wait_for_previous();
    let_next_start();
    if (at < keys.tokens) append_key(keys, at, shared);
    if (is_query) scale = prepare_query(queries, query, shared);
  }
  __syncthreads();
  if (dot < 0 && is_query && threadIdx.x % 32 == 0)
    queries.weights[query] = (parts[in_block][0] + parts[in_block][1]) * queries.factor * scale;
}

LaunchShape rows_shape(int64_t rows, int64_t dim) {
  return {.grid = num_tiles(rows, kRowWarps),
          .block = kRowWarps * 32,
          .shared_bytes = static_cast<int>(kRowWarps * dim) * int{sizeof(float)}};
}

IndexQueryParams params_of(const ops::IndexQueryArgs& args) {
  const int64_t heads = args.q.dim(1), dim = args.q.dim(2);
  return {.q = args.q.as<Bf16>(),
          .w = args.w.as<float>(),
          .table = args.table.as<float>(),
          .out = args.out.as<F8E4M3>(),
          .weights = args.weights.as<float>(),
          .rows = args.q.dim(0) * heads,
          .heads = static_cast<int>(heads),
          .dim = static_cast<int>(dim),
          .rope_dim = static_cast<int>(args.table.dim(1)),
          .factor = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim)),
          .has_lane_rows = has_lane_rows(args) && heads % kLaneRows == 0};
}

// Warps of index_append_query_kernel.
int64_t query_warps(const IndexQueryParams& p) {
  return p.has_lane_rows ? p.rows / kLaneRows : p.rows;
}

HeadWeightParams head_weights(const ops::IndexAppendQueryArgs& args) {
  return {.x = args.x.as<Bf16>(),
          .weights_proj = args.weights_proj.as<Bf16>(),
          .x_stride = args.x.stride(0),
          .vectors = static_cast<int>(args.x.dim(1) / 8)};
}

// By the sizes of a row and the class of calls that this one belongs to (docs/contracts/ops.md).
bool makes_weights(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream) {
  const int64_t vectors = args.x.dim(1) / 8;
  return args.x.dim(0) <= tuned::kMaxStreamedRows && !stream.backend().batch_invariant &&
         args.weights_proj.dtype() == tensor::DType::kBf16 &&
         args.x.dim(1) % (8 * kDotWarps) == 0 && vectors <= kDotWarps * kDotVectors * 32 &&
         on_16_bytes(args.x) && args.x.stride(0) % 8 == 0 && on_16_bytes(args.weights_proj);
}

}  // namespace

void index_append(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  const IndexAppendParams p = index_append_params(args);
  launch(index_append_query_kernel, rows_shape(p.tokens, p.dim), stream, p, IndexQueryParams{});
}

void index_query(const ops::IndexQueryArgs& args, ops::Stream& stream) {
  const IndexQueryParams p = params_of(args);
  launch(index_append_query_kernel, rows_shape(query_warps(p), p.dim), stream, IndexAppendParams{},
         p);
}

bool takes_index_append_query(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream) {
  return args.q_a.is_null() || takes_query_step(args, stream);
}

int64_t index_append_query_scratch(const ops::IndexAppendQueryArgs& args,
                                   const ops::Stream& stream) {
  return linear_scratch(ops::weights_product(args), stream);
}

void index_append_query(const ops::IndexAppendQueryArgs& args, ops::Stream& stream) {
  if (!args.q_a.is_null()) return run_query_step(args, stream);
  const IndexAppendParams keys = index_append_params(args.append);
  const IndexQueryParams queries = params_of(args.query);
  if (makes_weights(args, stream)) {
    LaunchShape shape = rows_shape(keys.tokens + queries.rows, keys.dim);
    shape.block = kRowWarps * (1 + kDotWarps) * 32;
    return launch(index_step_kernel, shape, stream, keys, queries, head_weights(args));
  }
  cuda::linear(ops::weights_product(args), stream);
  launch(index_append_query_kernel, rows_shape(keys.tokens + query_warps(queries), keys.dim),
         stream, keys, queries);
}

}  // namespace fathom::cuda
