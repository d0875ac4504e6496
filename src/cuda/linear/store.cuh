#pragma once
// How a product reaches its output: as bf16 or f32, alone or added to what is there.
//
//   store_product(p, part, token, row, value);        // of the head blockIdx.z
//   store_product_4(p, part, token, row, values);     // rows row to row + 3, those that the part has
//
// Internal to cuda/linear/.

#include <cstdint>

#include "cuda/device/convert.cuh"
#include "cuda/linear/product.h"

namespace fathom::cuda {

__device__ __forceinline__ void store_product(const ProductParams& p, const ProductPart& part,
                                              int token, int row, float value) {
  const int64_t at = token * part.out_stride + blockIdx.z * part.out_head + row;
  if (part.out_is_float) {
    float* const out = reinterpret_cast<float*>(part.out) + at;
    *out = p.accumulate ? *out + value : value;
  } else {
    Bf16* const out = reinterpret_cast<Bf16*>(part.out) + at;
    *out = cuda::from_float<Bf16>(p.accumulate ? cuda::to_float(*out) + value : value);
  }
}

// Whether four rows of `out` can be written at once.
template <class Out>
__device__ __forceinline__ bool fits_whole(const ProductPart& part, const Out* out, int row) {
  return row + 4 <= part.rows && reinterpret_cast<uintptr_t>(out) % (4 * sizeof(Out)) == 0;
}

// REQUIRES: row % 4 == 0.
__device__ __forceinline__ void store_product_4(const ProductParams& p, const ProductPart& part,
                                                int token, int row, float4 v) {
  const int64_t at = token * part.out_stride + blockIdx.z * part.out_head + row;
  float* const as_float = reinterpret_cast<float*>(part.out) + at;
  Bf16* const as_bf16 = reinterpret_cast<Bf16*>(part.out) + at;
  if (part.out_is_float && fits_whole(part, as_float, row)) {
    float4* const out = reinterpret_cast<float4*>(as_float);
    if (p.accumulate) {
      const float4 before = *out;
      v.x += before.x, v.y += before.y, v.z += before.z, v.w += before.w;
    }
    *out = v;
  } else if (!part.out_is_float && fits_whole(part, as_bf16, row)) {
    uint2* const out = reinterpret_cast<uint2*>(as_bf16);
    if (p.accumulate) {
      const uint2 before = *out;
      v.x += bf16x2_low(before.x), v.y += bf16x2_high(before.x);
      v.z += bf16x2_low(before.y), v.w += bf16x2_high(before.y);
    }
    *out = make_uint2(floats_to_bf16x2(v.x, v.y), floats_to_bf16x2(v.z, v.w));
  } else {
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (row + i < part.rows) store_product(p, part, token, row + i, values[i]);
  }
}

}  // namespace fathom::cuda
