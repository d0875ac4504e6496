#include "cuda/linear/quantize_rows.h"

#include "cuda/device/convert.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 4;

// Neighbouring channels of a lane, read and written at once where all rows begin on their boundaries.
constexpr int kEach = kScaleBlock / 32;
template <class T>
struct alignas(kEach * sizeof(T)) Piece {
  T values[kEach];
};

// A warp per row and 128 channels, heads along y; bound by latency. Unless the next kernel starts early it finds what
// the kernels two before wrote.
template <class X, bool kAligned>
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
  F8E4M3* const q = static_cast<F8E4M3*>(p.q) + out_row * p.dim + channel;
  Piece<X> from{};
  if (kAligned && mine > 0) from = *reinterpret_cast<const Piece<X>*>(x);
  float values[kEach], most = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (!kAligned && i < mine) from.values[i] = x[i];
    values[i] = kAligned || i < mine ? cuda::to_float(from.values[i]) : 0.0f;
    most = fmaxf(most, fabsf(values[i]));
  }
  const float scale = fp8_scale(warp_max(most));
  Piece<F8E4M3> to;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    to.values[i] = cuda::from_float<F8E4M3>(__fdiv_rn(values[i], scale));
    if (!kAligned && i < mine) q[i] = to.values[i];
  }
  if (kAligned && mine > 0) *reinterpret_cast<Piece<F8E4M3>*>(q) = to;
  if (lane == 0) p.scale[out_row * blocks + block] = scale;
}

// The results lie in scratch, one row behind the other.
template <class X>
bool is_aligned(const QuantizeRowsParams& p) {
  return p.dim % kEach == 0 && p.stride % kEach == 0 && p.head_stride % kEach == 0 &&
         reinterpret_cast<uintptr_t>(p.x) % sizeof(Piece<X>) == 0;
}

template <class X>
void launch_rows(const QuantizeRowsParams& params, ops::Stream& stream) {
  const int blocks = static_cast<int>(num_tiles(params.dim, kScaleBlock));
  const LaunchShape shape{
      .grid = dim3(num_tiles(params.rows * blocks, kWarps), static_cast<unsigned>(params.heads)),
      .block = kWarps * 32};
  const auto kernel =
      is_aligned<X>(params) ? quantize_rows_kernel<X, true> : quantize_rows_kernel<X, false>;
  launch(kernel, shape, stream, params, blocks);
}

}  // namespace

void quantize_rows(const QuantizeRowsParams& params, ops::Stream& stream) {
  if (params.x_is_float) return launch_rows<float>(params, stream);
  launch_rows<Bf16>(params, stream);
}

}  // namespace fathom::cuda
