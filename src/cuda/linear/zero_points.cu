#include "cuda/linear/zero_points.h"

#include "cuda/linear/store.cuh"
#include "cuda/linear/zero_points.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

struct LinearParams {
  PairSizes sizes;
  const char* weight;
  const uint16_t* scale;
  const char* x;
  int64_t x_stride_bytes;
  ProductParams product;  // what is stored, and where
};

// Bound by reading the weight once for up to 8 rows, then by what is done to its words for each 32 rows. Grid: (32 rows
// of the weight, 8 * NT tokens). Shared memory: the warps' sums.
template <int NT>
__global__ void __launch_bounds__(kPairThreads)
    zero_point_linear_kernel(const __grid_constant__ LinearParams p) {
  __shared__ float shared[kPairSums<NT>];
  let_next_start();
  const int lane = threadIdx.x % 32, first_row = static_cast<int>(blockIdx.x) * kPairRows;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * NT;
  PairRows rows;
#pragma unroll
  for (int i = 0; i < kPairTiles * 2; ++i) {
    const int64_t row = min(first_row + i * 8 + lane / 4, p.product.a.rows - 1);
    rows.weight[i / 2][i % 2] = p.weight + row * (p.sizes.in / 2);
    rows.scale[i / 2][i % 2] = p.scale + row * 2 * p.sizes.groups();
  }
  const char* x[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int token = first_token + n * 8 + lane / 4;
    x[n] = token < p.product.tokens ? p.x + token * p.x_stride_bytes : nullptr;
  }
  wait_for_previous();
  const int columns = min(NT, (p.product.tokens - first_token + 7) / 8);
  multiply_pairs<NT>(rows, x, columns, p.sizes, shared);
  for (int i = static_cast<int>(threadIdx.x); i < 8 * NT * kPairRows; i += kPairThreads) {
    const int token = first_token + i / kPairRows, row = first_row + i % kPairRows;
    if (token < p.product.tokens && row < p.product.a.rows)
      store_product(p.product, p.product.a, token, row, shared[i]);
  }
}

template <int NT>
void launch_linear(const LinearParams& params, ops::Stream& stream) {
  launch(zero_point_linear_kernel<NT>,
         {.grid = dim3(num_tiles(params.product.a.rows, kPairRows),
                       num_tiles(params.product.tokens, 8 * NT)),
          .block = kPairThreads},
         stream, params);
}

}  // namespace

void zero_point_linear(const ops::LinearArgs& args, ops::Stream& stream) {
  const tensor::Tensor& x = args.x.values;
  const ops::Weight& weight = args.weight;
  LinearParams params{.sizes = {.in = static_cast<int>(x.dim(1)),
                                .channels = static_cast<int>(ops::zero_point_channels(weight))},
                      .weight = static_cast<const char*>(weight.data.data()),
                      .scale = static_cast<const uint16_t*>(weight.scale.data()),
                      .x = static_cast<const char*>(x.data()),
                      .x_stride_bytes = x.stride(0) * tensor::dtype_bytes(x.dtype()),
                      .product = {}};
  params.sizes.x_is_aligned =
      reinterpret_cast<uintptr_t>(params.x) % 16 == 0 && params.x_stride_bytes % 16 == 0;
  params.product.tokens = static_cast<int>(x.dim(0));
  params.product.accumulate = args.accumulate;
  params.product.a = {.out = static_cast<char*>(args.out.data()),
                      .out_stride = args.out.stride(0),
                      .rows = static_cast<int>(weight.data.dim(0)),
                      .out_is_float = args.out.dtype() == tensor::DType::kF32};
  if (params.product.tokens <= 8) return launch_linear<1>(params, stream);
  launch_linear<4>(params, stream);
}

}  // namespace fathom::cuda
