#pragma once
// A row of the cache as kv_append writes it: kv_append_kernel and chains (cuda/jit/) have the same bits.
//
//   __shared__ float reduced[kAppendThreads / 32];
//   append_row<Bf16, kAppendHeld>(params, token, reduced);      // of a block's first kAppendThreads threads
//
// Bound by latency: what a row needs is loaded at once, and its weight while the kernel before still runs. The order
// of the sum of squares depends on the width alone: values of a thread, lanes, warps. Internal to cuda/cache/ and
// cuda/fusion/.

#include "cuda/cache/kv_row.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/ptx/pdl.cuh"
#ifndef __CUDACC_RTC__
#include "ops/kv_cache.h"
#endif

namespace fathom::cuda {

inline constexpr int kAppendThreads = 128;
// Latent values of a thread that are held in registers; wider rows are read twice.
inline constexpr int kAppendHeld = 4;

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

// The first or second value of a rotated pair.
__device__ __forceinline__ float rotated(float a, float b, float cosine, float sine,
                                         bool is_first) {
  return is_first ? __fmaf_rn(a, cosine, -__fmul_rn(b, sine))
                  : __fmaf_rn(b, cosine, __fmul_rn(a, sine));
}
// Rotated value i of the rope part, pairs side by side as they lie in the row.
__device__ __forceinline__ float rotated(const Bf16* rope, const float* table, int rope_dim,
                                         int i) {
  const int pair = i / 2;
  return rotated(cuda::to_float(rope[2 * pair]), cuda::to_float(rope[2 * pair + 1]), table[pair],
                 table[rope_dim / 2 + pair], i % 2 == 0);
}

// The bytes between the parts of a row, which become 0. All that is not f8 has none.
__device__ __forceinline__ void clear_gaps(const KvLayout& cache, char* row) {
  const auto clear = [row](int64_t begin, int64_t end) {
    for (int64_t i = begin + threadIdx.x; i < end; i += kAppendThreads) row[i] = 0;
  };
  clear(cache.latent_dim, cache.scale_offset);
  clear(cache.scale_offset + scale_blocks(cache.latent_dim) * 4, cache.rope_offset);
  clear(cache.rope_offset + cache.rope_dim * 2, cache.row_bytes);
}

// A group of 128 channels, of which each lane of a warp has four: value j is channel 32 j + lane of it.
__device__ __forceinline__ void store_group_f8(const float (&values)[4], const KvLayout& cache,
                                               int group, char* row) {
  const int lane = threadIdx.x % 32;
  float amax = 0.0f;
#pragma unroll
  for (int j = 0; j < 4; ++j) amax = fmaxf(amax, fabsf(values[j]));
  const float scale = kv_scale_of(warp_max(amax));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = group * kScaleBlock + j * 32 + lane;
    if (i < cache.latent_dim)
      reinterpret_cast<F8E4M3*>(row)[i] = from_float<F8E4M3>(__fdiv_rn(values[j], scale));
  }
  if (lane == 0) reinterpret_cast<float*>(row + cache.scale_offset)[group] = scale;
}

template <class Latent>
__device__ __forceinline__ void append_rope(const AppendParams& p, int64_t token, char* row) {
  using Rope = std::conditional_t<std::is_same_v<Latent, F8E4M3>, Bf16, Latent>;
  const int rope_dim = p.cache.rope_dim;
  const Bf16* const from = p.kv_a + token * p.kv_a_stride + p.cache.latent_dim;
  const float* const table = p.table + token * rope_dim;
  auto* const rope = reinterpret_cast<Rope*>(row + p.cache.rope_offset);
  for (int i = threadIdx.x; i < rope_dim; i += kAppendThreads)
    rope[i] = from_float<Rope>(rotated(from, table, rope_dim, i));
}

__device__ __forceinline__ float append_factor(float squares, const AppendParams& p,
                                               float* reduced) {
  squares = block_sum<kAppendThreads>(squares, reduced);
  return __frcp_rn(__fsqrt_rn(squares / static_cast<float>(p.cache.latent_dim) + p.eps));
}

// kHeld values of the latent part and their weights in a thread's registers, in both orders: that of the sum, and in
// f8 that of groups, of which a warp then has one. REQUIRES: latent_dim <= kHeld * kAppendThreads.
template <class Latent, int kHeld>
class HeldRow {
 public:
  // The weights: before the wait.
  __device__ __forceinline__ explicit HeldRow(const AppendParams& p) : p_(p) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) weight_[j] = stored(j) < dim() ? weight_at(p, stored(j)) : 0.0f;
  }

  // Behind the wait.
  __device__ __forceinline__ void append(int64_t token, float* reduced) const {
    const int64_t kv_row = p_.kv_rows[token * p_.kv_rows_stride];
    const Bf16* const kv_a = p_.kv_a + token * p_.kv_a_stride;
    Bf16 to_sum[kHeld], to_store[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) to_sum[j] = summed(j) < dim() ? kv_a[summed(j)] : Bf16{};
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      to_store[j] = !kIsF8 ? to_sum[j] : stored(j) < dim() ? kv_a[stored(j)] : Bf16{};
    if (kv_row < 0) return;  // padding
    char* const row = p_.cache.row(kv_row);
    append_rope<Latent>(p_, token, row);
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const float v = cuda::to_float(to_sum[j]);
      squares = __fmaf_rn(v, v, squares);
    }
    const float factor = append_factor(squares, p_, reduced);
    float values[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      values[j] = __fmul_rn(__fmul_rn(cuda::to_float(to_store[j]), factor), weight_[j]);
    store(values, row);
  }

 private:
  static constexpr bool kIsF8 = std::is_same_v<Latent, F8E4M3>;
  static_assert(kHeld == kScaleBlock / 32 && kHeld == kAppendThreads / 32);

  __device__ __forceinline__ int dim() const { return p_.cache.latent_dim; }
  static __device__ __forceinline__ int summed(int j) {
    return j * kAppendThreads + static_cast<int>(threadIdx.x);
  }
  static __device__ __forceinline__ int stored(int j) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return kIsF8 ? (warp * kHeld + j) * 32 + lane : summed(j);
  }

  __device__ __forceinline__ void store(const float (&values)[kHeld], char* row) const {
    if constexpr (kIsF8) {
      const int warp = threadIdx.x / 32;
      if (warp * kScaleBlock < dim()) store_group_f8(values, p_.cache, warp, row);
      clear_gaps(p_.cache, row);
    } else {
#pragma unroll
      for (int j = 0; j < kHeld; ++j)
        if (stored(j) < dim())
          reinterpret_cast<Latent*>(row)[stored(j)] = from_float<Latent>(values[j]);
    }
  }

  const AppendParams& p_;
  float weight_[kHeld];
};

// Any width. In f8 each warp takes every fourth group of 128 channels.
template <class Latent>
__device__ __forceinline__ void append_wide_row(const AppendParams& p, int64_t token,
                                                float* reduced) {
  wait_for_previous();
  const int64_t kv_row = p.kv_rows[token * p.kv_rows_stride];
  if (kv_row < 0) return;  // padding
  const int dim = p.cache.latent_dim;
  const Bf16* const kv_a = p.kv_a + token * p.kv_a_stride;
  char* const row = p.cache.row(kv_row);
  float squares = 0.0f;
  for (int i = threadIdx.x; i < dim; i += kAppendThreads) {
    const float v = cuda::to_float(kv_a[i]);
    squares = __fmaf_rn(v, v, squares);
  }
  const float factor = append_factor(squares, p, reduced);
  const auto normed = [&](int i) {
    return __fmul_rn(__fmul_rn(cuda::to_float(kv_a[i]), factor), weight_at(p, i));
  };
  if constexpr (std::is_same_v<Latent, F8E4M3>) {
    for (int group = threadIdx.x / 32; group < scale_blocks(dim); group += kAppendThreads / 32) {
      float values[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = group * kScaleBlock + j * 32 + static_cast<int>(threadIdx.x) % 32;
        values[j] = i < dim ? normed(i) : 0.0f;
      }
      store_group_f8(values, p.cache, group, row);
    }
    clear_gaps(p.cache, row);
  } else {
    for (int i = threadIdx.x; i < dim; i += kAppendThreads)
      reinterpret_cast<Latent*>(row)[i] = from_float<Latent>(normed(i));
  }
  append_rope<Latent>(p, token, row);
}

// kHeld: kAppendHeld, or 0 for rows of any width.
template <class Latent, int kHeld>
__device__ __forceinline__ void append_row(const AppendParams& p, int64_t token, float* reduced) {
  if constexpr (kHeld > 0) {
    const HeldRow<Latent, kHeld> row(p);
    wait_for_previous();
    row.append(token, reduced);
  } else {
    append_wide_row<Latent>(p, token, reduced);
  }
}

#ifndef __CUDACC_RTC__
inline AppendParams append_params(const ops::KvAppendArgs& args) {
  return {.kv_a = args.kv_a.as<Bf16>(),
          .weight = args.weight.data(),
          .table = args.table.as<float>(),
          .kv_rows = args.kv_rows.as<int64_t>(),
          .cache = kv_layout(args.cache),
          .kv_a_stride = args.kv_a.stride(0),
          .weight_stride = args.weight.stride(0),
          .kv_rows_stride = args.kv_rows.stride(0),
          .eps = args.eps,
          .weight_is_f32 = args.weight.dtype() == tensor::DType::kF32};
}
inline bool holds_append(const AppendParams& p) {
  return p.cache.latent_dim <= kAppendHeld * kAppendThreads;
}
#endif

}  // namespace fathom::cuda
