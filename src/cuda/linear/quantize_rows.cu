#include "cuda/linear/quantize_rows.h"

#include "cuda/device/convert.cuh"
#include "cuda/device/pdl.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 4, kBlock = 128;

// A warp per row and 128 channels, heads along y; bound by latency. The next kernel may start only after this one's wait, so that it
// finds what the kernels two before wrote (experts/down.cuh reads lists before its own wait).
template <class X>
__global__ void __launch_bounds__(kWarps * 32)
    quantize_rows_kernel(const __grid_constant__ QuantizeRowsParams p, int blocks) {
  wait_for_previous();
  let_next_start();
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= p.rows * blocks) return;
  const int64_t row = item / blocks, out_row = row * gridDim.y + blockIdx.y;
  const int block = static_cast<int>(item % blocks), lane = threadIdx.x % 32;
  const X* const x = static_cast<const X*>(p.x) + row * p.stride + blockIdx.y * p.head_stride;
  F8E4M3* const q = static_cast<F8E4M3*>(p.q) + out_row * p.dim;
  float values[4], most = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int channel = block * kBlock + i * 32 + lane;
    values[i] = channel < p.dim ? cuda::to_float(x[channel]) : 0.0f;
    most = fmaxf(most, fabsf(values[i]));
  }
  const float scale = fp8_scale(warp_max(most));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int channel = block * kBlock + i * 32 + lane;
    if (channel < p.dim) q[channel] = cuda::from_float<F8E4M3>(__fdiv_rn(values[i], scale));
  }
  if (lane == 0) p.scale[out_row * blocks + block] = scale;
}

}  // namespace

void quantize_rows(const QuantizeRowsParams& params, ops::Stream& stream) {
  const int blocks = static_cast<int>(num_tiles(params.dim, kBlock));
  const LaunchShape shape{
      .grid = dim3(num_tiles(params.rows * blocks, kWarps), static_cast<unsigned>(params.heads)),
      .block = kWarps * 32};
  if (params.x_is_float) {
    launch(quantize_rows_kernel<float>, shape, stream, params, blocks);
  } else {
    launch(quantize_rows_kernel<Bf16>, shape, stream, params, blocks);
  }
}

}  // namespace fathom::cuda
