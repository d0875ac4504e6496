#pragma once
// What kernels for few rows store of an instruction's sums.
//
//   store_columns(out + row * stride + column, stride, num_rows, {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
//
// Internal to gemm/.

#include "cuda/device/convert.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

// A warp's 16 columns of up to 8 rows, of which a lane has, in float32, two neighbouring rows of column lane / 4 and of
// the eighth behind it. Four lanes store the 32 bytes of a row.
__device__ __forceinline__ void store_columns(tensor::Bf16* out, int64_t stride, int num_rows,
                                              const float (&sums)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4;
  const bool odd = lane % 2 != 0;
  const uint32_t first = transpose_matrix(floats_to_bf16x2(sums[0], sums[1]));
  const uint32_t last = transpose_matrix(floats_to_bf16x2(sums[2], sums[3]));
  const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? first : last, 1);
  if (row < num_rows)
    *reinterpret_cast<uint2*>(out + row * stride + (odd ? 8 : 0) + lane % 4 / 2 * 4) =
        odd ? uint2{other, last} : uint2{first, other};
}

}  // namespace fathom::cuda
