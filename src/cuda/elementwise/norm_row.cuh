#pragma once
// A row on its way through rms_norm: what the kernels that normalise share, so that all of them give the same bits.
//
//   const NormRow<false> row(params);                              // of this block
//   Vector v = row.load(i);   row.keep(v, i);                      // x + residual, which the residual gets
//   row.finish(v, weight, norm_factor(block_total(sum, shared), params), i);
//
// A block has a row, and a thread has the vectors of 8 at i * threads + thread, i = 0, 1, ...

#include "cuda/device/reduce.cuh"
#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#ifndef __CUDACC_RTC__
#include "cuda/runtime/launch.cuh"
#include "ops/rms_norm.h"
#endif

namespace fathom::cuda {

inline constexpr int kNormThreads = 512;  // of a block at most

#ifndef __CUDACC_RTC__
// How a row is shared by the threads of its block: a function of the width alone.
struct NormLayout {
  int64_t per_thread;  // vectors
  unsigned block;      // threads
};
inline NormLayout norm_layout(int64_t dim) {
  const int64_t vectors = (dim + kVector - 1) / kVector;
  const int64_t per_thread = vectors <= kNormThreads ? 1 : (vectors <= 2 * kNormThreads ? 2 : 4);
  return {per_thread, num_tiles(vectors, per_thread * 32) * 32};
}
#endif

struct NormParams {
  const Bf16* x;             // bf16[rows, dim], rows x_stride apart
  const void* weight;        // f32|bf16[dim]
  Bf16* residual = nullptr;  // bf16[rows, dim]; null allowed
  Bf16* out = nullptr;       // bf16[rows, dim], rows out_stride apart; null allowed; may be x
  F8E4M3* q = nullptr;       // f8[rows, dim]; null allowed
  float* scale = nullptr;    // f32[rows, ceil(dim / 128)]; null where q is
  int64_t x_stride, out_stride = 0;
  int64_t rows;
  int dim, scale_blocks = 0;
  float eps;
  bool aligned;
};

// The sum over the block's first threads, whole warps, in order of warps. All others have ended.
__device__ __forceinline__ float block_total(float v, float* shared, int threads = blockDim.x) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  // Lanes of no warp add 0.
  return warp_sum(static_cast<int>(threadIdx.x) % 32 < threads / 32 ? shared[threadIdx.x % 32]
                                                                    : 0.0f);
}

// As the residual holds it.
__device__ __forceinline__ Vector residual_sum(Vector v, const Vector& before) {
#pragma unroll
  for (int k = 0; k < kVector; ++k) v.at[k] += before.at[k];
  round_to_bf16(v);
  return v;
}

__device__ __forceinline__ Vector normed(Vector v, const Vector& weight, float factor) {
#pragma unroll
  for (int k = 0; k < kVector; ++k) v.at[k] = v.at[k] * factor * weight.at[k];
  return v;
}

// kWhole: rows are aligned and each thread has whole vectors of them, so nothing is asked on the way.
template <bool kWhole>
class NormRow {
 public:
  // threads: those that share the row, of the block where nothing else is said; thread: of them.
  __device__ __forceinline__ explicit NormRow(const NormParams& p, int64_t row = blockIdx.x,
                                              int threads = blockDim.x, int thread = threadIdx.x)
      : p_(p), row_(row), threads_(threads), thread_(thread) {}

  __device__ __forceinline__ int begin(int i) const { return (i * threads_ + thread_) * kVector; }
  template <class Weight>
  __device__ __forceinline__ Words<Weight> load_weight(int i) const {
    return load_words(static_cast<const Weight*>(p_.weight), begin(i), end(i), aligned());
  }
  // What is normalised comes from two places.
  struct Parts {
    Words<Bf16> x, before;
  };
  __device__ __forceinline__ Parts load_parts(int i) const {
    return load_parts_at(begin(i), end(i));
  }
  // Of the vector that begins at a channel.
  __device__ __forceinline__ Parts load_parts_at(int begin, int end) const {
    Parts parts;
    parts.x = load_words(p_.x + row_ * p_.x_stride, begin, end, aligned());
    if (p_.residual != nullptr)
      parts.before = load_words(p_.residual + row_ * p_.dim, begin, end, aligned());
    return parts;
  }
  __device__ __forceinline__ Parts load_parts_at(int begin) const {
    return load_parts_at(begin, begin + kVector);
  }
  // The residual gets their sum.
  __device__ __forceinline__ Vector add(const Parts& parts) const {
    const Vector v = unpack(parts.x);
    return p_.residual == nullptr ? v : residual_sum(v, unpack(parts.before));
  }
  __device__ __forceinline__ Vector load(int i) const { return add(load_parts(i)); }
  __device__ __forceinline__ void keep(const Vector& v, int i) const {
    if (p_.residual != nullptr)
      store_vector(v, p_.residual + row_ * p_.dim, begin(i), end(i), aligned());
  }
  // What load() gave, once more from memory.
  __device__ __forceinline__ Vector reload(int i) const {
    const Bf16* const from =
        p_.residual != nullptr ? p_.residual + row_ * p_.dim : p_.x + row_ * p_.x_stride;
    return load_vector(from, begin(i), end(i), aligned());
  }
  __device__ __forceinline__ void finish(Vector v, const Vector& weight, float factor,
                                         int i) const {
    v = normed(v, weight, factor);
    if (p_.out != nullptr)
      store_vector(v, p_.out + row_ * p_.out_stride, begin(i), end(i), aligned());
    if (p_.q == nullptr) return;
    round_to_bf16(v);
    // Channels past the end are 0 there, not NaN: NaN * 0 of a row with a NaN would not count anyway.
    quantize_vector(v, p_.q + row_ * p_.dim, begin(i), end(i), aligned(),
                    p_.scale + row_ * p_.scale_blocks);
  }

 private:
  // What the loads and stores of vector i take for the row's end.
  __device__ __forceinline__ int end(int i) const { return kWhole ? begin(i) + kVector : p_.dim; }
  __device__ __forceinline__ bool aligned() const { return kWhole || p_.aligned; }

  const NormParams& p_;
  const int64_t row_;
  const int threads_, thread_;
};

__device__ __forceinline__ float sum_of_squares(const Vector& v) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kVector; ++k) sum += v.at[k] * v.at[k];
  return sum;
}

__device__ __forceinline__ float norm_factor(float sum, const NormParams& p) {
  return 1.0f / sqrtf(sum / static_cast<float>(p.dim) + p.eps);
}

// A row whose vectors the block's threads keep in registers as memory has them, kVectors each. The weight is loaded
// while the kernel before still runs. shared: a float for each warp. kWhole: of NormRow.
template <class Weight, int kVectors, bool kWhole = false>
__device__ __forceinline__ void normalise_row(const NormParams& p, float* shared,
                                              int threads = blockDim.x) {
  const NormRow<kWhole> row(p, blockIdx.x, threads);
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) weight[i] = row.template load_weight<Weight>(i);
  wait_for_previous();
  Words<Bf16> v[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) v[i].at[0] = pack(row.load(i));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    sum += sum_of_squares(unpack(v[i]));
    row.keep(unpack(v[i]), i);
  }
  const float factor = norm_factor(block_total(sum, shared, threads), p);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
}

#ifndef __CUDACC_RTC__
inline NormParams norm_params(const ops::RmsNormArgs& args, const ops::Activation& quantised) {
  NormParams params{.x = args.x.as<Bf16>(),
                    .weight = args.weight.data(),
                    .x_stride = args.x.stride(0),
                    .rows = args.x.dim(0),
                    .dim = static_cast<int>(args.x.dim(1)),
                    .eps = args.eps,
                    .aligned = rows_aligned(args.x, 16) && rows_aligned(args.weight, 16) &&
                               rows_aligned(args.residual, 16) && rows_aligned(args.out, 16) &&
                               rows_aligned(quantised.values, kVector)};
  if (!args.residual.is_null()) params.residual = args.residual.as<Bf16>();
  if (!args.out.is_null()) {
    params.out = args.out.as<Bf16>();
    params.out_stride = args.out.stride(0);
  }
  if (!quantised.is_null()) {
    params.q = quantised.values.as<F8E4M3>();
    params.scale = quantised.scale.as<float>();
    params.scale_blocks = static_cast<int>(quantised.scale.dim(1));
  }
  return params;
}
#endif

}  // namespace fathom::cuda
