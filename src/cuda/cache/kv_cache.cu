// kv_append and kv_gather. Both copy: a row of 1.2 KB in, one out.

#include "ops/kv_cache.h"

#include <algorithm>

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kGatherThreads = 128;

// One block a token.
template <class Latent, int kHeld>
__global__ void __launch_bounds__(kAppendThreads) kv_append_kernel(const AppendParams p) {
  __shared__ float reduced[kAppendThreads / 32];
  let_next_start();
  append_row<Latent, kHeld>(p, blockIdx.x, reduced);
}

constexpr int kMaxSegments = 64;

struct GatherParams {
  KvLayout cache;
  const int32_t* block_tables;  // [seqs, max_blocks]
  int64_t max_blocks;
  int block_tokens, num_segments;
  Bf16* latent;
  Bf16* k_rope;
  int64_t latent_stride, k_rope_stride;
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
  auto* const latent = reinterpret_cast<uint4*>(p.latent + to * p.latent_stride);
  auto* const k_rope = reinterpret_cast<uint4*>(p.k_rope + to * p.k_rope_stride);
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
    p.latent[to * p.latent_stride + i] = from_float<Bf16>(kv_value<Latent>(from, p.cache, i));
  for (int i = lane; i < rope_dim; i += 32)
    p.k_rope[to * p.k_rope_stride + i] = from_float<Bf16>(kv_value<Latent>(from, p.cache, dim + i));
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
  p.latent_stride = args.latent.stride(0);
  p.k_rope_stride = args.k_rope.stride(0);
  p.vectors = is_aligned(p.cache.data) && is_aligned(p.latent) && is_aligned(p.k_rope) &&
              p.cache.row_bytes % 16 == 0 && p.cache.rope_offset % 16 == 0 &&
              p.cache.latent_dim % 8 == 0 && p.cache.rope_dim % 8 == 0 &&
              p.latent_stride % 8 == 0 && p.k_rope_stride % 8 == 0;
  return p;
}

}  // namespace

void kv_append(const ops::KvAppendArgs& args, ops::Stream& stream) {
  const AppendParams p = append_params(args);
  const LaunchShape shape{.grid = static_cast<unsigned>(args.kv_a.dim(0)), .block = kAppendThreads};
  with_cache_type(args.cache.format.latent, [&]<class Latent>(Latent) {
    holds_append(p) ? launch(kv_append_kernel<Latent, kAppendHeld>, shape, stream, p)
                    : launch(kv_append_kernel<Latent, 0>, shape, stream, p);
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
