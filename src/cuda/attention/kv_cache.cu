// kv_append and kv_gather. Both copy: a row of 1.2 KB in, one out.

#include "ops/kv_cache.h"

#include <algorithm>

#include "cuda/attention/kv_row.cuh"
#include "cuda/attention/ops.h"
#include "cuda/device/reduce.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kAppendThreads = 128, kGatherThreads = 128;

struct AppendParams {
  const Bf16* kv_a;  // [tokens, latent_dim + rope_dim], strided
  const void* weight;
  const float* table;
  const int64_t* kv_rows;
  KvLayout cache;
  int64_t kv_a_stride, weight_stride, kv_rows_stride;
  float eps;
  bool weight_is_f32;
};

__device__ __forceinline__ float weight_at(const AppendParams& p, int i) {
  const int64_t at = i * p.weight_stride;
  return p.weight_is_f32 ? static_cast<const float*>(p.weight)[at]
                         : cuda::to_float(static_cast<const Bf16*>(p.weight)[at]);
}

// The smallest power of two, at least 2^-126, with amax / scale <= 448 (ops/kv_format.h).
__device__ __forceinline__ float kv_scale_of(float amax) {
  if (amax == 0.0f) return 1.0f;
  if (isinf(amax)) return amax;
  int exponent = 0;
  const float fraction = frexpf(amax, &exponent);
  exponent = fraction <= 0.875f ? exponent - 9 : exponent - 8;
  return ldexpf(1.0f, max(exponent, -126));
}

// Rotated value i of the rope part, pairs side by side as they lie in the row.
__device__ __forceinline__ float rotated(const Bf16* rope, const float* table, int rope_dim,
                                         int i) {
  const int pair = i / 2;
  const float cosine = table[pair], sine = table[rope_dim / 2 + pair];
  const float a = cuda::to_float(rope[2 * pair]), b = cuda::to_float(rope[2 * pair + 1]);
  return i % 2 == 0 ? __fmaf_rn(a, cosine, -__fmul_rn(b, sine))
                    : __fmaf_rn(b, cosine, __fmul_rn(a, sine));
}

// The normalised latent value i; what is rounded where is the same for every format.
__device__ __forceinline__ float normed(const AppendParams& p, const Bf16* kv_a, float factor,
                                        int i) {
  return __fmul_rn(__fmul_rn(cuda::to_float(kv_a[i]), factor), weight_at(p, i));
}

// Each warp takes every fourth group of 128 channels, each lane four of them, so the largest is found by
// shuffles. The bytes up to the scales, and behind the last scale, become 0.
__device__ void store_latent_f8(const AppendParams& p, const Bf16* kv_a, float factor, char* row) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = p.cache.latent_dim;
  auto* const q = reinterpret_cast<F8E4M3*>(row);
  const int groups = scale_blocks(dim);
  for (int group = warp; group < groups; group += kAppendThreads / 32) {
    float values[4], amax = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = group * kScaleBlock + j * 32 + lane;
      values[j] = i < dim ? normed(p, kv_a, factor, i) : 0.0f;
      amax = fmaxf(amax, fabsf(values[j]));
    }
    const float scale = kv_scale_of(warp_max(amax));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = group * kScaleBlock + j * 32 + lane;
      if (i < dim) q[i] = from_float<F8E4M3>(__fdiv_rn(values[j], scale));
    }
    if (lane == 0) reinterpret_cast<float*>(row + p.cache.scale_offset)[group] = scale;
  }
  for (int i = dim + static_cast<int>(threadIdx.x); i < p.cache.scale_offset; i += kAppendThreads)
    row[i] = 0;
  const int scales_end = p.cache.scale_offset + groups * 4;
  for (int i = scales_end + static_cast<int>(threadIdx.x); i < p.cache.rope_offset;
       i += kAppendThreads)
    row[i] = 0;
}

// One block a token.
template <class Latent>
__global__ void __launch_bounds__(kAppendThreads) kv_append_kernel(const AppendParams p) {
  constexpr bool kIsF8 = std::is_same_v<Latent, F8E4M3>;
  using Rope = std::conditional_t<kIsF8, Bf16, Latent>;
  __shared__ float reduced[kAppendThreads / 32];
  let_next_start();
  wait_for_previous();
  const int64_t token = blockIdx.x, kv_row = p.kv_rows[token * p.kv_rows_stride];
  if (kv_row < 0) return;  // padding
  const int dim = p.cache.latent_dim, rope_dim = p.cache.rope_dim;
  const Bf16* const kv_a = p.kv_a + token * p.kv_a_stride;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < dim; i += kAppendThreads) {
    const float v = cuda::to_float(kv_a[i]);
    squares = __fmaf_rn(v, v, squares);
  }
  squares = block_sum<kAppendThreads>(squares, reduced);
  const float factor = __frcp_rn(__fsqrt_rn(squares / static_cast<float>(dim) + p.eps));
  char* const row = p.cache.row(kv_row);
  if constexpr (kIsF8) {
    store_latent_f8(p, kv_a, factor, row);
  } else {
    for (int i = threadIdx.x; i < dim; i += kAppendThreads)
      reinterpret_cast<Latent*>(row)[i] = from_float<Latent>(normed(p, kv_a, factor, i));
  }
  const float* const table = p.table + token * rope_dim;
  auto* const rope = reinterpret_cast<Rope*>(row + p.cache.rope_offset);
  for (int i = threadIdx.x; i < rope_dim; i += kAppendThreads)
    rope[i] = from_float<Rope>(rotated(kv_a + dim, table, rope_dim, i));
  if constexpr (kIsF8) {
    const int end = p.cache.rope_offset + rope_dim * 2;
    for (int64_t i = end + threadIdx.x; i < p.cache.row_bytes; i += kAppendThreads) row[i] = 0;
  }
}

constexpr int kMaxSegments = 64;

struct GatherParams {
  KvLayout cache;
  const int32_t* block_tables;  // [seqs, max_blocks]
  int64_t max_blocks;
  int block_tokens, num_segments;
  Bf16* latent;
  Bf16* k_rope;
  int64_t begin[kMaxSegments + 1];  // rows of the buffer, from the first one of this launch on
  int64_t row_begin[kMaxSegments];
  int32_t sequence_idx[kMaxSegments];
  bool vectors;  // 16 bytes at a time
};

// Eight values as bf16, from 16-byte aligned rows.
template <class Latent>
__device__ __forceinline__ uint4 eight_values(const char* row, const KvLayout& cache, int i) {
  float v[8];
  if constexpr (std::is_same_v<Latent, F8E4M3>) {
    const float scale = reinterpret_cast<const float*>(row + cache.scale_offset)[i / kScaleBlock];
    const auto raw = *reinterpret_cast<const uint2*>(row + i);
    const uint16_t pairs[4] = {static_cast<uint16_t>(raw.x), static_cast<uint16_t>(raw.x >> 16),
                               static_cast<uint16_t>(raw.y), static_cast<uint16_t>(raw.y >> 16)};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t halves = e4m3x2_to_half2(pairs[j]);
      v[2 * j] = __half2float(__ushort_as_half(static_cast<uint16_t>(halves))) * scale;
      v[2 * j + 1] = __half2float(__ushort_as_half(static_cast<uint16_t>(halves >> 16))) * scale;
    }
  } else {
    const auto* const from = reinterpret_cast<const float4*>(row + i * 4);
    const float4 a = from[0], b = from[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  }
  return {floats_to_bf16x2(v[0], v[1]), floats_to_bf16x2(v[2], v[3]), floats_to_bf16x2(v[4], v[5]),
          floats_to_bf16x2(v[6], v[7])};
}

template <class Latent>
__device__ void copy_vectors(const GatherParams& p, const char* from, int64_t to) {
  const int lane = threadIdx.x % 32, dim = p.cache.latent_dim, rope_dim = p.cache.rope_dim;
  auto* const latent = reinterpret_cast<uint4*>(p.latent + to * dim);
  auto* const k_rope = reinterpret_cast<uint4*>(p.k_rope + to * rope_dim);
  for (int i = lane; i < dim / 8; i += 32) {
    if constexpr (std::is_same_v<Latent, Bf16>) {
      latent[i] = reinterpret_cast<const uint4*>(from)[i];
    } else {
      latent[i] = eight_values<Latent>(from, p.cache, i * 8);
    }
  }
  for (int i = lane; i < rope_dim / 8; i += 32) {
    if constexpr (std::is_same_v<Latent, float>) {
      k_rope[i] = eight_values<float>(from + p.cache.rope_offset, p.cache, i * 8);
    } else {
      k_rope[i] = reinterpret_cast<const uint4*>(from + p.cache.rope_offset)[i];
    }
  }
}

// One warp a row.
template <class Latent>
__global__ void __launch_bounds__(kGatherThreads)
    kv_gather_kernel(const __grid_constant__ GatherParams p) {
  let_next_start();
  wait_for_previous();
  const int lane = threadIdx.x % 32;
  const int64_t to = p.begin[0] + int64_t{blockIdx.x} * (kGatherThreads / 32) + threadIdx.x / 32;
  if (to >= p.begin[p.num_segments]) return;
  int segment = 0;
  while (to >= p.begin[segment + 1]) ++segment;
  const int64_t row = p.row_begin[segment] + (to - p.begin[segment]);
  const int64_t block = row / p.block_tokens;
  const int32_t block_id = p.block_tables[p.sequence_idx[segment] * p.max_blocks + block];
  const char* const from = p.cache.row(int64_t{block_id} * p.block_tokens + row % p.block_tokens);
  if (p.vectors) return copy_vectors<Latent>(p, from, to);
  const int dim = p.cache.latent_dim, rope_dim = p.cache.rope_dim;
  for (int i = lane; i < dim; i += 32)
    p.latent[to * dim + i] = from_float<Bf16>(kv_value<Latent>(from, p.cache, i));
  for (int i = lane; i < rope_dim; i += 32)
    p.k_rope[to * rope_dim + i] = from_float<Bf16>(kv_value<Latent>(from, p.cache, dim + i));
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

GatherParams gather_params(const ops::KvGatherArgs& args) {
  GatherParams p{};
  p.cache = kv_layout(args.cache);
  p.block_tables = args.block_tables.as<int32_t>();
  p.max_blocks = args.block_tables.dim(1);
  p.block_tokens = static_cast<int>(args.cache.block_tokens());
  p.latent = args.latent.as<Bf16>();
  p.k_rope = args.k_rope.as<Bf16>();
  p.vectors = is_aligned(p.cache.data) && is_aligned(p.latent) && is_aligned(p.k_rope) &&
              p.cache.row_bytes % 16 == 0 && p.cache.rope_offset % 16 == 0 &&
              p.cache.latent_dim % 8 == 0 && p.cache.rope_dim % 8 == 0;
  return p;
}

}  // namespace

void kv_append(const ops::KvAppendArgs& args, ops::Stream& stream) {
  const AppendParams p{.kv_a = args.kv_a.as<Bf16>(),
                       .weight = args.weight.data(),
                       .table = args.table.as<float>(),
                       .kv_rows = args.kv_rows.as<int64_t>(),
                       .cache = kv_layout(args.cache),
                       .kv_a_stride = args.kv_a.stride(0),
                       .weight_stride = args.weight.stride(0),
                       .kv_rows_stride = args.kv_rows.stride(0),
                       .eps = args.eps,
                       .weight_is_f32 = args.weight.dtype() == tensor::DType::kF32};
  const LaunchShape shape{.grid = static_cast<unsigned>(args.kv_a.dim(0)), .block = kAppendThreads};
  with_cache_type(args.cache.format.latent, [&]<class Latent>(Latent) {
    launch(kv_append_kernel<Latent>, shape, stream, p);
  });
}

void kv_gather(const ops::KvGatherArgs& args, ops::Stream& stream) {
  GatherParams p = gather_params(args);
  for (size_t first = 0; first < args.segments.size(); first += kMaxSegments) {
    const auto segments =
        args.segments.subspan(first, std::min<size_t>(kMaxSegments, args.segments.size() - first));
    p.num_segments = static_cast<int>(segments.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      p.begin[i] = segments[i].buffer_begin;
      p.begin[i + 1] = segments[i].buffer_begin + segments[i].num_rows;
      p.row_begin[i] = segments[i].row_begin;
      p.sequence_idx[i] = static_cast<int32_t>(segments[i].sequence_idx);
    }
    const int64_t rows = p.begin[p.num_segments] - p.begin[0];
    const LaunchShape shape{.grid = num_tiles(rows, kGatherThreads / 32), .block = kGatherThreads};
    with_cache_type(args.cache.format.latent, [&]<class Latent>(Latent) {
      launch(kv_gather_kernel<Latent>, shape, stream, p);
    });
  }
}

}  // namespace fathom::cuda
