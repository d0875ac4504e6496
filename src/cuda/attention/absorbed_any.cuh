#pragma once
// Absorbed attention over rows of any size and format, one block for a head of a query token: what the kernel that is
// built ahead and those that are compiled for a model's sizes share, so that they have the same bits.
//
//   extern __shared__ __align__(16) float shared[];
//   __shared__ AnyTile tile;
//   attend_any<Bf16, false>(p, shared, tile);
//
// Internal to cuda/attention/.

#include <cstring>

#include "cuda/attention/mla_absorbed.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/pdl.cuh"

namespace fathom::cuda {

inline constexpr int kAnyThreads = 128;

struct AnyTile {
  float weights[kAnyThreads];
  int64_t offsets[kAnyThreads];
  float reduced[kAnyThreads / 32];
};

// The products of a part of a row with the query, added to `sum` in order, 16 bytes of the row at a time.
// scaled(value, i): the value i of the part as it counts.
template <class T, class Scaled>
__device__ __forceinline__ float add_products(const char* from, const float* query, int count,
                                              const Scaled& scaled, float sum) {
  constexpr int kValues = 16 / static_cast<int>(sizeof(T));
#pragma unroll 4
  for (int i = 0; i < count; i += kValues) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from + i * static_cast<int>(sizeof(T)));
    T values[kValues];
    memcpy(values, &raw, sizeof(raw));
#pragma unroll
    for (int k = 0; k < kValues; ++k)
      sum = __fmaf_rn(query[i + k], scaled(cuda::to_float(values[k]), i), sum);
  }
  return sum;
}

// kPieces: the parts of rows are whole pieces of 16 bytes, and are read so.
template <class Latent, bool kPieces>
__device__ __forceinline__ float score_of(const AbsorbedParams& p, const float* query,
                                          int64_t offset) {
  const char* const row = p.cache.data + offset;
  const int latent_dim = p.cache.latent_dim, dim = latent_dim + p.cache.rope_dim;
  float sum = 0.0f;
  if constexpr (kPieces) {
    constexpr bool kIsF8 = std::is_same_v<Latent, F8E4M3>;
    using Rope = std::conditional_t<kIsF8, Bf16, Latent>;
    const auto as_stored = [](float value, int) { return value; };
    const auto times_scale = [&](float value, int i) {
      return value * reinterpret_cast<const float*>(row + p.cache.scale_offset)[i / kScaleBlock];
    };
    if constexpr (kIsF8) {
      sum = add_products<Latent>(row, query, latent_dim, times_scale, sum);
    } else {
      sum = add_products<Latent>(row, query, latent_dim, as_stored, sum);
    }
    sum = add_products<Rope>(row + p.cache.rope_offset, query + latent_dim, p.cache.rope_dim,
                             as_stored, sum);
  } else {
    for (int i = 0; i < dim; ++i) sum = __fmaf_rn(query[i], kv_value<Latent>(row, p.cache, i), sum);
  }
  return __fmul_rn(sum, p.scale);
}

// Value i of the tile's rows, weighted, added to `value` in order. Hidden rows may be anything; those behind the last
// one count as hidden. kPieces: the values of several rows are on their way together.
template <class Latent, bool kPieces>
__device__ __forceinline__ float add_values(const AbsorbedParams& p, const AnyTile& tile, int rows,
                                            int i, float value) {
  constexpr int kAtOnce = kPieces ? 8 : 1;
  for (int j = 0; j < rows; j += kAtOnce) {
    float of_row[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      of_row[k] = tile.offsets[j + k] < 0
                      ? 0.0f
                      : kv_value<Latent>(p.cache.data + tile.offsets[j + k], p.cache, i);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (tile.offsets[j + k] >= 0) value = __fmaf_rn(tile.weights[j + k], of_row[k], value);
  }
  return value;
}

// Thread i has row `first + i`; then thread i has every 128th value.
template <class Latent, bool kPieces>
__device__ __forceinline__ void attend_tile(const AbsorbedParams& p, const QueryGroup& group,
                                            uint64_t mask, int first, const float* query,
                                            AnyTile& tile, Merged& total, float* values) {
  const int row = first + static_cast<int>(threadIdx.x);
  const bool visible = row < group.end() && is_visible(group, group.first_query, mask, row);
  tile.offsets[threadIdx.x] = visible ? kv_row_at(p, group.seq, row) * p.cache.row_bytes : -1;
  const float score =
      visible ? score_of<Latent, kPieces>(p, query, tile.offsets[threadIdx.x]) : minus_infinity();
  const float max = fmaxf(total.max, block_max<kAnyThreads>(score, tile.reduced));
  const float weight = exp2_fast(score - finite_max(max));
  const float factor = exp2_fast(total.max - finite_max(max));
  tile.weights[threadIdx.x] = weight;
  total.max = max;
  total.sum = __fmaf_rn(total.sum, factor, block_sum<kAnyThreads>(weight, tile.reduced));
  const int rows = min(kAnyThreads, group.end() - first);
  for (int i = threadIdx.x; i < p.cache.latent_dim; i += kAnyThreads)
    values[i] = add_values<Latent, kPieces>(p, tile, rows, i, values[i] * factor);
  __syncthreads();
}

// kPieces: as score_of() says.
template <class Latent, bool kPieces>
__device__ __forceinline__ void attend_any(const AbsorbedParams& p, float* shared, AnyTile& tile) {
  wait_for_previous();
  const int latent_dim = p.cache.latent_dim, rope_dim = p.cache.rope_dim;
  float* const query = shared;
  float* const values = query + latent_dim + rope_dim;
  const QueryGroup group = find_group(p, blockIdx.x, 1);
  if (group.seq < 0) return;
  const int64_t token = group.first_token, head = group.first_head;
  const Bf16* const latent = p.q_latent + (token * p.heads + head) * latent_dim;
  const Bf16* const rope = p.q_rope + token * p.q_rope_token_stride + head * p.q_rope_head_stride;
  for (int i = threadIdx.x; i < latent_dim; i += kAnyThreads) {
    query[i] = cuda::to_float(latent[i]);
    values[i] = 0.0f;
  }
  for (int i = threadIdx.x; i < rope_dim; i += kAnyThreads)
    query[latent_dim + i] = cuda::to_float(rope[i]);
  __syncthreads();
  const uint64_t mask = group.is_tree ? p.tree_mask[token] : 0;
  Merged total = Merged::none();
  for (int first = 0; first < group.end() && group.kv_len > 0; first += kAnyThreads)
    attend_tile<Latent, kPieces>(p, group, mask, first, query, tile, total, values);
  Bf16* const out = p.out + (token * p.heads + head) * latent_dim;
  for (int i = threadIdx.x; i < latent_dim; i += kAnyThreads)
    out[i] = from_float<Bf16>(group.kv_len > 0 ? values[i] / total.sum : 0.0f);
}

}  // namespace fathom::cuda
