// rms_norm, rms_norm_quantize: one kernel, so that both have the same bits. Bound by latency up to some hundred
// rows, then by memory: 4 bytes an element, 8 with a residual, 1 more quantised.
// Grid: one block per row; for many long rows, the blocks that run at once take them in turn. A thread keeps its
// vectors of 8 in registers between the sum and the write, all loads are in flight at once, the weight is loaded while
// the kernel before still runs. Shared: one float a warp.
// The order of the sum depends on the width alone: vectors of a thread, lanes, warps.

#include "cuda/device/reduce.cuh"
#include "cuda/elementwise/ops.h"
#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/rms_norm.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 512, kLongThreads = 1024;
constexpr int kResidentBlocks = 2;  // of a multiprocessor that take many rows in turn

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

// The sum over the block's threads in order of warps, for any number of warps.
__device__ __forceinline__ float block_total(float v, float* shared) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  // Lanes of no warp add 0.
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f);
}

// kWhole: rows are aligned and each thread has whole vectors of them, so nothing is asked on the way.
template <bool kWhole>
class NormRow {
 public:
  __device__ __forceinline__ explicit NormRow(const NormParams& p, int64_t row = blockIdx.x)
      : p_(p), row_(row) {}

  __device__ __forceinline__ int begin(int i) const {
    return (i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
  }
  // What is normalised comes from two places.
  struct Parts {
    Words<Bf16> x, before;
  };
  __device__ __forceinline__ Parts load_parts(int i) const {
    Parts parts;
    parts.x = load_words(p_.x + row_ * p_.x_stride, begin(i), end(i), aligned());
    if (p_.residual != nullptr)
      parts.before = load_words(p_.residual + row_ * p_.dim, begin(i), end(i), aligned());
    return parts;
  }
  // The residual gets their sum.
  __device__ __forceinline__ Vector add(const Parts& parts) const {
    Vector v = unpack(parts.x);
    if (p_.residual == nullptr) return v;
    const Vector before = unpack(parts.before);
#pragma unroll
    for (int k = 0; k < kVector; ++k) v.at[k] += before.at[k];
    round_to_bf16(v);
    return v;
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
#pragma unroll
    for (int k = 0; k < kVector; ++k) v.at[k] = v.at[k] * factor * weight.at[k];
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

// kVectors: of a thread, held in registers as memory has them, so that several blocks fit.
template <class Weight, int kVectors>
__global__ void __launch_bounds__(kThreads, kVectors <= 2 ? 2 : 1)
    norm_rows(const __grid_constant__ NormParams p) {
  __shared__ float shared[kThreads / 32];
  let_next_start();
  const NormRow<false> row(p);
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    weight[i] = load_words(static_cast<const Weight*>(p.weight), row.begin(i), p.dim, p.aligned);
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
  const float factor = norm_factor(block_total(sum, shared), p);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
}

// The same for many rows: as many blocks as run at once take them in turn, and the loads of the next row are under way
// while this one is summed and written.
template <class Weight, int kVectors, bool kWhole>
__global__ void __launch_bounds__(kThreads, kVectors <= 2 ? kResidentBlocks : 1)
    norm_many_rows(const __grid_constant__ NormParams p) {
  // Used in turn: a slow warp may still read the row before's.
  __shared__ float shared[2][kThreads / 32];
  using Row = NormRow<kWhole>;
  let_next_start();
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    weight[i] = load_words(static_cast<const Weight*>(p.weight), Row(p).begin(i), p.dim, p.aligned);
  wait_for_previous();
  typename Row::Parts parts[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) parts[i] = Row(p).load_parts(i);
  int turn = 0;
  for (int64_t at = blockIdx.x; at < p.rows; at += gridDim.x, turn ^= 1) {
    const Row row(p, at), next(p, at + gridDim.x);
    Words<Bf16> v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i].at[0] = pack(row.add(parts[i]));
    if (at + gridDim.x < p.rows) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) parts[i] = next.load_parts(i);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      sum += sum_of_squares(unpack(v[i]));
      row.keep(unpack(v[i]), i);
    }
    const float factor = norm_factor(block_total(sum, shared[turn]), p);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
  }
}

// Rows that no block's registers hold are read twice.
template <class Weight>
__global__ void __launch_bounds__(kLongThreads, 1)
    norm_long_rows(const __grid_constant__ NormParams p) {
  __shared__ float shared[kLongThreads / 32];
  let_next_start();
  wait_for_previous();
  const NormRow<false> row(p);
  const int rounds = (p.dim + kLongThreads * kVector - 1) / (kLongThreads * kVector);
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const Vector v = row.load(i);
    sum += sum_of_squares(v);
    row.keep(v, i);
  }
  const float factor = norm_factor(block_total(sum, shared), p);
  for (int i = 0; i < rounds; ++i) {
    const Vector weight =
        load_vector(static_cast<const Weight*>(p.weight), row.begin(i), p.dim, p.aligned);
    row.finish(row.reload(i), weight, factor, i);
  }
}

template <class Weight>
void run(const NormParams& params, int64_t rows, ops::Stream& stream) {
  // The layout is a function of the width alone.
  const int64_t vectors = (params.dim + kVector - 1) / kVector;
  const int64_t per_thread = vectors <= kThreads ? 1 : (vectors <= 2 * kThreads ? 2 : 4);
  LaunchShape shape{.grid = static_cast<unsigned>(rows),
                    .block = num_tiles(vectors, per_thread * 32) * 32};
  const int64_t resident = int64_t{kResidentBlocks} * num_multiprocessors();
  if (per_thread == 2 && rows >= 4 * resident) {
    shape.grid = static_cast<unsigned>(resident);
    const bool whole = params.aligned && params.dim == per_thread * shape.block.x * kVector;
    const auto kernel = whole ? norm_many_rows<Weight, 2, true> : norm_many_rows<Weight, 2, false>;
    return launch(kernel, shape, stream, params);
  }
  if (per_thread == 1) return launch(norm_rows<Weight, 1>, shape, stream, params);
  if (per_thread == 2) return launch(norm_rows<Weight, 2>, shape, stream, params);
  if (vectors <= 4 * kThreads) return launch(norm_rows<Weight, 4>, shape, stream, params);
  shape.block = kLongThreads;
  launch(norm_long_rows<Weight>, shape, stream, params);
}

void run(const ops::RmsNormArgs& args, const ops::Activation& quantised, ops::Stream& stream) {
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
  if (args.weight.dtype() == tensor::DType::kF32) return run<float>(params, args.x.dim(0), stream);
  run<Bf16>(params, args.x.dim(0), stream);
}

}  // namespace

void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream) { run(args, {}, stream); }

void rms_norm_quantize(const ops::RmsNormQuantizeArgs& args, ops::Stream& stream) {
  run(args.norm, args.quantised, stream);
}

}  // namespace fathom::cuda
