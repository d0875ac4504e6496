#pragma once
// Rows of the indexer: what is done to keys and queries, by a warp that has the row in shared memory or in registers,
// and keys on their way to the cache. Internal to cuda/indexer/.
//
//   WarpRow row(shared, dim);                  // of this warp; row.x is filled, then __syncwarp()
//   row.rotate(angles);  row.transform();  scale = row.quantise(out);
//   append_key(params, token, shared);         // behind the wait

#include "cuda/device/convert.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "ops/index.h"

namespace fathom::cuda {

// A lane's angle of a row's rotation: asked for before the row is worked on, so that it comes with the row.
struct Angles {
  const float* table;
  int pairs;
  float cosine = 0.0f, sine = 0.0f;  // of pair `lane`

  __device__ __forceinline__ Angles(const float* row_table, int rope_dim)
      : table(row_table), pairs(rope_dim / 2) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane >= pairs) return;
    cosine = table[lane];
    sine = table[pairs + lane];
  }
};

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

  // Pairs (j, j + pairs).
  __device__ __forceinline__ void rotate(const Angles& angles) {
    const int pairs = angles.pairs;
    for (int j = lane; j < pairs; j += 32) {
      const float cosine = j == lane ? angles.cosine : angles.table[j];
      const float sine = j == lane ? angles.sine : angles.table[pairs + j];
      const float a = x[j], b = x[j + pairs];
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

// A row of the published size in registers, four values a lane, by the rules of WarpRow.
struct LaneRow {
  static constexpr int kDim = 128, kRope = 64, kRopeLanes = kRope / 4;

  float x[4];

  // row: on 8 bytes.
  __device__ __forceinline__ void load(const Bf16* row) {
    const uint2 words = reinterpret_cast<const uint2*>(row)[lane()];
    x[0] = bf16x2_low(words.x), x[1] = bf16x2_high(words.x);
    x[2] = bf16x2_low(words.y), x[3] = bf16x2_high(words.y);
  }

  // Of a row of the table on 16 bytes.
  struct Angles {
    float4 cosine, sine;
  };
  static __device__ __forceinline__ Angles angles_of(const float* row_table) {
    const float* const from = row_table + lane() % (kRopeLanes / 2) * 4;
    return {*reinterpret_cast<const float4*>(from),
            *reinterpret_cast<const float4*>(from + kRope / 2)};
  }

  __device__ __forceinline__ void rotate(const Angles& angles) {
    const float cosine[4] = {angles.cosine.x, angles.cosine.y, angles.cosine.z, angles.cosine.w};
    const float sine[4] = {angles.sine.x, angles.sine.y, angles.sine.z, angles.sine.w};
    const bool is_first = lane() < kRopeLanes / 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, x[i], kRopeLanes / 2);
      const float a = is_first ? x[i] : other, b = is_first ? other : x[i];
      const float first = a * cosine[i] - b * sine[i], second = b * cosine[i] + a * sine[i];
      if (lane() < kRopeLanes) x[i] = is_first ? first : second;
    }
  }

  // The levels of the transform: two within a lane, then those between lanes that are 1, 2, 4, 8 and 16 apart.
  __device__ __forceinline__ void transform_within() {
    const float sums[4] = {x[0] + x[1], x[0] - x[1], x[2] + x[3], x[2] - x[3]};
    x[0] = sums[0] + sums[2], x[1] = sums[1] + sums[3];
    x[2] = sums[0] - sums[2], x[3] = sums[1] - sums[3];
  }
  __device__ __forceinline__ void transform_between(int lanes) {
    const float sign = (lane() & lanes) == 0 ? 1.0f : -1.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = __fmaf_rn(x[i], sign, __shfl_xor_sync(0xffffffffu, x[i], lanes));
  }
  __device__ __forceinline__ void transform() {
    transform_within();
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) transform_between(lanes);
  }

  // out: on 4 bytes.
  __device__ __forceinline__ float quantise(F8E4M3* out) const {
    const float factor = __frcp_rn(__fsqrt_rn(static_cast<float>(kDim)));
    float amax = 1e-4f;
#pragma unroll
    for (const float v : x) amax = fmaxf(amax, fabsf(v * factor));
    // Positive numbers have the order of their bits.
    const uint32_t most = __reduce_max_sync(0xffffffffu, __float_as_uint(amax));
    const float scale = WarpRow::scale_of(__uint_as_float(most));
    const float inverse = __frcp_rn(scale);  // exact, of a power of two
    const auto value = [&](int i) { return x[i] * factor * inverse; };
    const uint32_t low = floats_to_e4m3x2(value(0), value(1));
    const uint32_t high = floats_to_e4m3x2(value(2), value(3));
    reinterpret_cast<uint32_t*>(out)[lane()] = low | high << 16;
    return scale;
  }

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
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

// The norm's weights on their way to the L2 cache, which other layers' have filled: before the wait.
__device__ __forceinline__ void ask_for_norm(const IndexAppendParams& p) {
  constexpr int kLineFloats = 32;
  const int i = static_cast<int>(threadIdx.x) % 32 * kLineFloats;
  if (i >= p.dim) return;
  const int64_t at = i * p.weight_stride;
  const char* const weight =
      static_cast<const char*>(p.weight) + at * (p.weight_is_f32 ? sizeof(float) : sizeof(Bf16));
  prefetch_line(weight);
  prefetch_line(p.bias + i);
}

__device__ __forceinline__ void append_key(const IndexAppendParams& p, int64_t token,
                                           float* shared) {
  // What comes from memory is asked for together.
  const int64_t kv_row = p.kv_rows[token * p.kv_rows_stride];
  const Angles angles(p.table + token * p.rope_dim, p.rope_dim);
  WarpRow row(shared, p.dim);
  for (int i = row.lane; i < p.dim; i += 32) row.x[i] = cuda::to_float(p.k[token * p.k_stride + i]);
  if (kv_row < 0) return;  // padding
  const auto weight = [&p](int i) {
    const int64_t at = i * p.weight_stride;
    return p.weight_is_f32 ? static_cast<const float*>(p.weight)[at]
                           : cuda::to_float(static_cast<const Bf16*>(p.weight)[at]);
  };
  row.normalise(weight, p.bias, p.eps);
  row.rotate(angles);
  row.transform();
  const float scale = row.quantise(p.values + kv_row * p.dim);
  if (row.lane == 0) p.scales[kv_row] = scale;
}

inline bool on_16_bytes(const tensor::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0;
}

// Whether LaneRow takes the rows of queries.
inline bool has_lane_rows(const ops::IndexQueryArgs& args) {
  return args.q.dim(2) == LaneRow::kDim && args.table.dim(1) == LaneRow::kRope &&
         on_16_bytes(args.q) && on_16_bytes(args.table) && on_16_bytes(args.out);
}

inline IndexAppendParams index_append_params(const ops::IndexAppendArgs& args) {
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

}  // namespace fathom::cuda
