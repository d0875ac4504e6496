// index_append, index_query and both in one launch: a warp takes a row of index_head_dim values through its shared
// memory. Bound by the launch at decode, of prompts by instructions: 64 heads a token, seven levels of the transform
// each.
//
// Shared memory: 4 bytes a value, of 4 rows.

#include <cmath>

#include "cuda/device/convert.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/indexer/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/index.h"

namespace fathom::cuda {
namespace {

constexpr int kRowWarps = 4;

// A row in shared memory that one warp works on.
struct WarpRow {
  float* x;
  int dim, lane;

  __device__ __forceinline__ explicit WarpRow(float* shared, int row_dim)
      : x(shared + threadIdx.x / 32 * row_dim), dim(row_dim), lane(threadIdx.x % 32) {}

  // Mean 0 and variance 1, times weight, plus bias.
  template <class Weight>
  __device__ __forceinline__ void normalise(const Weight& weight, const float* bias, float eps) {
    float sum = 0.0f;
    for (int i = lane; i < dim; i += 32) sum += x[i];
    const float mean = warp_sum(sum) / static_cast<float>(dim);
    float squares = 0.0f;
    for (int i = lane; i < dim; i += 32) {
      x[i] -= mean;
      squares = __fmaf_rn(x[i], x[i], squares);
    }
    const float factor = __frcp_rn(__fsqrt_rn(warp_sum(squares) / static_cast<float>(dim) + eps));
    for (int i = lane; i < dim; i += 32) x[i] = __fmaf_rn(x[i] * factor, weight(i), bias[i]);
    __syncwarp();
  }

  // Pairs (j, j + rope_dim / 2).
  __device__ __forceinline__ void rotate(const float* table, int rope_dim) {
    const int pairs = rope_dim / 2;
    for (int j = lane; j < pairs; j += 32) {
      const float a = x[j], b = x[j + pairs], cosine = table[j], sine = table[pairs + j];
      x[j] = a * cosine - b * sine;
      x[j + pairs] = b * cosine + a * sine;
    }
    __syncwarp();
  }

  // Sylvester's matrix, without its factor.
  __device__ __forceinline__ void transform() {
    for (int half = 1; half < dim; half *= 2) {
      for (int i = lane; i < dim / 2; i += 32) {
        const int at = (i & ~(half - 1)) * 2 + (i & (half - 1));
        const float a = x[at], b = x[at + half];
        x[at] = a + b;
        x[at + half] = a - b;
      }
      __syncwarp();
    }
  }

  // Times the transform's factor. Returns the scale.
  __device__ __forceinline__ float quantise(F8E4M3* out) const {
    const float factor = __frcp_rn(__fsqrt_rn(static_cast<float>(dim)));
    float amax = 1e-4f;
    for (int i = lane; i < dim; i += 32) amax = fmaxf(amax, fabsf(x[i] * factor));
    const float scale = scale_of(warp_max(amax));
    for (int i = lane; i < dim; i += 32)
      out[i] = from_float<F8E4M3>(__fdiv_rn(x[i] * factor, scale));
    return scale;
  }

  // The smallest power of two with amax / scale <= 448 = 1.75 * 2^8, amax being no subnormal (ops/index_cache.h).
  static __device__ __forceinline__ float scale_of(float amax) {
    constexpr uint32_t kMantissa = 0x7fffffu, kThreeQuarters = 0x600000u;
    if (isinf(amax)) return amax;
    const uint32_t bits = __float_as_uint(amax);
    return __uint_as_float(((bits >> 23) - 8 + ((bits & kMantissa) > kThreeQuarters ? 1 : 0))
                           << 23);
  }
};

struct IndexAppendParams {
  const Bf16* k;  // [tokens, dim], strided
  const void* weight;
  const float* bias;
  const float* table;
  const int64_t* kv_rows;
  F8E4M3* values;
  float* scales;
  int64_t k_stride, weight_stride, kv_rows_stride;
  int tokens, dim, rope_dim;
  float eps;
  bool weight_is_f32;
};

__device__ __forceinline__ void append_key(const IndexAppendParams& p, int64_t token,
                                           float* shared) {
  const int64_t kv_row = p.kv_rows[token * p.kv_rows_stride];
  if (kv_row < 0) return;  // padding
  WarpRow row(shared, p.dim);
  for (int i = row.lane; i < p.dim; i += 32) row.x[i] = cuda::to_float(p.k[token * p.k_stride + i]);
  const auto weight = [&p](int i) {
    const int64_t at = i * p.weight_stride;
    return p.weight_is_f32 ? static_cast<const float*>(p.weight)[at]
                           : cuda::to_float(static_cast<const Bf16*>(p.weight)[at]);
  };
  row.normalise(weight, p.bias, p.eps);
  row.rotate(p.table + token * p.rope_dim, p.rope_dim);
  row.transform();
  const float scale = row.quantise(p.values + kv_row * p.dim);
  if (row.lane == 0) p.scales[kv_row] = scale;
}

struct IndexQueryParams {
  const Bf16* q;  // [tokens, heads, dim]
  const float* w;
  const float* table;
  F8E4M3* out;
  float* weights;
  int64_t rows;  // tokens * heads
  int heads, dim, rope_dim;
  float factor;
};

__device__ __forceinline__ void prepare_query(const IndexQueryParams& p, int64_t at,
                                              float* shared) {
  WarpRow row(shared, p.dim);
  for (int i = row.lane; i < p.dim; i += 32) row.x[i] = cuda::to_float(p.q[at * p.dim + i]);
  __syncwarp();
  row.rotate(p.table + at / p.heads * p.rope_dim, p.rope_dim);
  row.transform();
  const float scale = row.quantise(p.out + at * p.dim);
  if (row.lane == 0) p.weights[at] = p.w[at] * p.factor * scale;
}

// The number of the warp, of all.
__device__ __forceinline__ int64_t warp_of_grid() {
  return int64_t{blockIdx.x} * kRowWarps + threadIdx.x / 32;
}

// Keys first: they take longer. An operator alone has no rows of the other.
__global__ void __launch_bounds__(kRowWarps * 32)
    index_append_query_kernel(const __grid_constant__ IndexAppendParams keys,
                              const __grid_constant__ IndexQueryParams queries) {
  extern __shared__ float shared[];
  let_next_start();
  wait_for_previous();
  const int64_t at = warp_of_grid();
  if (at < keys.tokens) {
    append_key(keys, at, shared);
  } else if (at - keys.tokens < queries.rows) {
    prepare_query(queries, at - keys.tokens, shared);
  }
}

LaunchShape rows_shape(int64_t rows, int64_t dim) {
  return {.grid = num_tiles(rows, kRowWarps),
          .block = kRowWarps * 32,
          .shared_bytes = static_cast<int>(kRowWarps * dim) * int{sizeof(float)}};
}

IndexAppendParams params_of(const ops::IndexAppendArgs& args) {
  return {.k = args.k.as<Bf16>(),
          .weight = args.weight.data(),
          .bias = args.bias.as<float>(),
          .table = args.table.as<float>(),
          .kv_rows = args.kv_rows.as<int64_t>(),
          .values = args.cache.values.as<F8E4M3>(),
          .scales = args.cache.scales.as<float>(),
          .k_stride = args.k.stride(0),
          .weight_stride = args.weight.stride(0),
          .kv_rows_stride = args.kv_rows.stride(0),
          .tokens = static_cast<int>(args.k.dim(0)),
          .dim = static_cast<int>(args.k.dim(1)),
          .rope_dim = static_cast<int>(args.table.dim(1)),
          .eps = args.eps,
          .weight_is_f32 = args.weight.dtype() == tensor::DType::kF32};
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
          .factor = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim))};
}

}  // namespace

void index_append(const ops::IndexAppendArgs& args, ops::Stream& stream) {
  const IndexAppendParams p = params_of(args);
  launch(index_append_query_kernel, rows_shape(p.tokens, p.dim), stream, p, IndexQueryParams{});
}

void index_query(const ops::IndexQueryArgs& args, ops::Stream& stream) {
  const IndexQueryParams p = params_of(args);
  launch(index_append_query_kernel, rows_shape(p.rows, p.dim), stream, IndexAppendParams{}, p);
}

void index_append_query(const ops::IndexAppendQueryArgs& args, ops::Stream& stream) {
  const IndexAppendParams keys = params_of(args.append);
  const IndexQueryParams queries = params_of(args.query);
  launch(index_append_query_kernel, rows_shape(keys.tokens + queries.rows, keys.dim), stream, keys,
         queries);
}

}  // namespace fathom::cuda
