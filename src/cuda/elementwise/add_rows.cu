// add_rows: one tensor added to another. Bound by memory: 6 bytes an element. Grid: one block per 2048 elements of a
// row. No shared memory.

#include "ops/add_rows.h"

#include "cuda/elementwise/ops.h"
#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kAddThreads = 256;
constexpr int kAddTile = kAddThreads * kVector;

struct AddParams {
  const Bf16* x;  // bf16[rows, dim], rows x_stride apart
  Bf16* sum;      // bf16[rows, dim], rows sum_stride apart
  int64_t x_stride, sum_stride;
  int dim, tiles;  // tiles: of a row
  bool aligned;
};

__global__ void __launch_bounds__(kAddThreads)
    add_rows_kernel(const __grid_constant__ AddParams p) {
  let_next_start();
  const int64_t row = blockIdx.x / static_cast<unsigned>(p.tiles);
  const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.tiles));
  const int begin = tile * kAddTile + static_cast<int>(threadIdx.x) * kVector;
  wait_for_previous();
  if (begin >= p.dim) return;
  Bf16* const to = p.sum + row * p.sum_stride;
  const Vector x = load_vector(p.x + row * p.x_stride, begin, p.dim, p.aligned);
  Vector sum = load_vector(static_cast<const Bf16*>(to), begin, p.dim, p.aligned);
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum.at[i] += x.at[i];
  store_vector(sum, to, begin, p.dim, p.aligned);
}

}  // namespace

void add_rows(const ops::AddRowsArgs& args, ops::Stream& stream) {
  const int64_t dim = args.sum.dim(1);
  const unsigned tiles = num_tiles(dim, kAddTile);
  const AddParams params{.x = args.x.as<Bf16>(),
                         .sum = args.sum.as<Bf16>(),
                         .x_stride = args.x.stride(0),
                         .sum_stride = args.sum.stride(0),
                         .dim = static_cast<int>(dim),
                         .tiles = static_cast<int>(tiles),
                         .aligned = rows_aligned(args.x, 16) && rows_aligned(args.sum, 16)};
  launch(add_rows_kernel,
         {.grid = static_cast<unsigned>(args.sum.dim(0)) * tiles, .block = kAddThreads}, stream,
         params);
}

}  // namespace fathom::cuda
