#include "cuda/elementwise/scale_layout.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

// Bound by memory, and small: 4 bytes in and out for every 128 of the rows. A block turns a square of the rows' scales
// in shared memory, so that both sides are read and written along lines; the blocks behind those copy the weight's.

namespace fathom::cuda {
namespace {

constexpr int kSide = 32, kThreads = 256;

__device__ __forceinline__ void turn(const ScaleLayoutArgs& p, int square, int squares_across) {
  __shared__ float values[kSide][kSide + 1];
  const int row = square / squares_across * kSide, block = square % squares_across * kSide;
  const int lane = static_cast<int>(threadIdx.x) % kSide,
            line = static_cast<int>(threadIdx.x) / kSide;
  for (int i = line; i < kSide; i += kThreads / kSide) {
    if (row + i < p.rows && block + lane < p.blocks)
      values[i][lane] = p.a[int64_t{row + i} * p.blocks + block + lane];
  }
  __syncthreads();
  for (int i = line; i < kSide; i += kThreads / kSide) {
    if (row + lane < p.rows && block + i < p.blocks)
      p.a_out[int64_t{block + i} * p.rows + row + lane] = values[lane][i];
  }
}

__device__ __forceinline__ void pad(const ScaleLayoutArgs& p, int index) {
  const int line = (p.blocks + kScaleLine - 1) / kScaleLine * kScaleLine;
  const int row = index / line, block = index % line;
  if (row < p.b_rows) p.b_out[index] = block < p.blocks ? p.b[row * p.blocks + block] : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    arrange_kernel(const __grid_constant__ ScaleLayoutArgs p, int squares, int squares_across) {
  let_next_start();
  wait_for_previous();
  const int block = static_cast<int>(blockIdx.x);
  if (block < squares) return turn(p, block, squares_across);
  pad(p, (block - squares) * kThreads + static_cast<int>(threadIdx.x));
}

}  // namespace

void arrange_scales(const ScaleLayoutArgs& args, ops::Stream& stream) {
  const unsigned across = num_tiles(args.blocks, kSide);
  const unsigned squares = across * num_tiles(args.rows, kSide);
  const int64_t line = int64_t{num_tiles(args.blocks, kScaleLine)} * kScaleLine;
  const unsigned padding = args.b_out == nullptr ? 0 : num_tiles(args.b_rows * line, kThreads);
  launch(arrange_kernel, {.grid = squares + padding, .block = kThreads}, stream, args,
         static_cast<int>(squares), static_cast<int>(across));
}

}  // namespace fathom::cuda
