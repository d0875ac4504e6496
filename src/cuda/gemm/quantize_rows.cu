#include "cuda/gemm/quantize_rows.h"

#include <algorithm>

#include "cuda/device/convert.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/gemm/to_i8.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 4, kMostRowThreads = 1024;

// Neighbouring channels of a lane, read and written at once where all rows begin on their boundaries.
constexpr int kEach = kScaleBlock / 32;
template <class T>
struct alignas(kEach * sizeof(T)) Piece {
  T values[kEach];
};

// Those of `mine` channels from x on, zeros behind them.
template <class X, bool kAligned>
__device__ __forceinline__ void load_channels(const X* x, int mine, float (&values)[kEach]) {
  Piece<X> from{};
  if (kAligned && mine > 0) from = *reinterpret_cast<const Piece<X>*>(x);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (!kAligned && i < mine) from.values[i] = x[i];
    values[i] = kAligned || i < mine ? cuda::to_float(from.values[i]) : 0.0f;
  }
}
template <bool kAligned>
__device__ __forceinline__ void store_channels(const Piece<uint8_t>& values, int mine, uint8_t* q) {
  if (kAligned && mine > 0) *reinterpret_cast<Piece<uint8_t>*>(q) = values;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (!kAligned && i < mine) q[i] = values.values[i];
}

// To e4m3: a NaN does not count for the scale.
struct ToE4m3 {
  float most = 0, scale = 0;
  __device__ __forceinline__ void see(float v) { most = fmaxf(most, fabsf(v)); }
  __device__ __forceinline__ void meet_warp() { most = warp_max(most); }
  __device__ __forceinline__ void find_scale() { scale = fp8_scale(most); }
  __device__ __forceinline__ uint8_t value(float v) const {
    return cuda::from_float<F8E4M3>(__fdiv_rn(v, scale)).bits;
  }
};
// A warp per row and 128 channels, heads along y; bound by latency. Unless the next kernel starts early it finds what
// the kernels two before wrote.
template <class X, bool kAligned, class Quantiser>
__global__ void __launch_bounds__(kWarps * 32)
    quantize_rows_kernel(const __grid_constant__ QuantizeRowsParams p, int blocks) {
  if (p.starts_next_early) let_next_start();
  wait_for_previous();
  let_next_start();
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= p.rows * blocks) return;
  const int64_t row = item / blocks, out_row = row * gridDim.y + blockIdx.y;
  const int block = static_cast<int>(item % blocks), lane = threadIdx.x % 32;
  const int channel = block * kScaleBlock + lane * kEach, mine = min(kEach, p.dim - channel);
  const X* const x =
      static_cast<const X*>(p.x) + row * p.stride + blockIdx.y * p.head_stride + channel;
  float values[kEach];
  load_channels<X, kAligned>(x, mine, values);
  Quantiser to;
#pragma unroll
  for (int i = 0; i < kEach; ++i) to.see(values[i]);
  to.meet_warp();
  to.find_scale();
  Piece<uint8_t> q;
#pragma unroll
  for (int i = 0; i < kEach; ++i) q.values[i] = to.value(values[i]);
  store_channels<kAligned>(q, mine, static_cast<uint8_t*>(p.q) + out_row * p.dim + channel);
  if (lane == 0) p.scale[out_row * blocks + block] = to.scale;
}

// A block per row, which has one scale; the row is read twice, the second time from the cache. Short rows have few
// threads.
template <class X, bool kAligned>
__global__ void __launch_bounds__(kMostRowThreads)
    quantize_whole_rows_kernel(const __grid_constant__ QuantizeRowsParams p) {
  __shared__ uint32_t warps[kMostRowThreads / 32];
  if (p.starts_next_early) let_next_start();
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x;
  const X* const x = static_cast<const X*>(p.x) + row * p.stride;
  uint8_t* const q = static_cast<uint8_t*>(p.q) + row * p.dim;
  const int first = static_cast<int>(threadIdx.x) * kEach;
  float values[kEach];
  ToI8 to;
  const int step = static_cast<int>(blockDim.x) * kEach;
  for (int channel = first; channel < p.dim; channel += step) {
    load_channels<X, kAligned>(x + channel, min(kEach, p.dim - channel), values);
#pragma unroll
    for (int i = 0; i < kEach; ++i) to.see(values[i]);
  }
  to.meet_warp();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = to.most;
  __syncthreads();
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp)
    to.most = max(to.most, warps[warp]);
  to.find_scale();
  for (int channel = first; channel < p.dim; channel += step) {
    const int mine = min(kEach, p.dim - channel);
    load_channels<X, kAligned>(x + channel, mine, values);
    Piece<uint8_t> out;
#pragma unroll
    for (int i = 0; i < kEach; ++i) out.values[i] = to.value(values[i]);
    store_channels<kAligned>(out, mine, q + channel);
  }
  if (threadIdx.x == 0) p.scale[row] = to.scale;
}

// The results lie in scratch, one row behind the other.
template <class X>
bool is_aligned(const QuantizeRowsParams& p) {
  return p.dim % kEach == 0 && p.stride % kEach == 0 && p.head_stride % kEach == 0 &&
         reinterpret_cast<uintptr_t>(p.x) % sizeof(Piece<X>) == 0;
}

template <class X, bool kAligned>
void launch_aligned(const QuantizeRowsParams& params, ops::Stream& stream) {
  if (params.kind == RowKind::kI8Rows)
    return launch(
        quantize_whole_rows_kernel<X, kAligned>,
        {.grid = static_cast<unsigned>(params.rows),
         .block = std::min<unsigned>(kMostRowThreads, num_tiles(params.dim, kEach * 32) * 32)},
        stream, params);
  const int blocks = static_cast<int>(num_tiles(params.dim, kScaleBlock));
  const LaunchShape shape{
      .grid = dim3(num_tiles(params.rows * blocks, kWarps), static_cast<unsigned>(params.heads)),
      .block = kWarps * 32};
  const auto kernel = params.kind == RowKind::kE4m3 ? quantize_rows_kernel<X, kAligned, ToE4m3>
                                                    : quantize_rows_kernel<X, kAligned, ToI8>;
  launch(kernel, shape, stream, params, blocks);
}

template <class X>
void launch_rows(const QuantizeRowsParams& params, ops::Stream& stream) {
  if (is_aligned<X>(params)) return launch_aligned<X, true>(params, stream);
  launch_aligned<X, false>(params, stream);
}

}  // namespace

void quantize_rows(const QuantizeRowsParams& params, ops::Stream& stream) {
  if (params.x_is_float) return launch_rows<float>(params, stream);
  launch_rows<Bf16>(params, stream);
}

}  // namespace fathom::cuda
