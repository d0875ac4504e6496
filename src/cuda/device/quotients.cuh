#pragma once
// Quotients of a row's values by their scale, as e4m3 needs them.
//
//   float v[8];  quotients(v, fp8_scale(amax));
//
// A pure function.

#include <cstdint>

namespace fathom::cuda {

// Values that e4m3 rounds as it rounds the true divisions. A product with the inverse is at most 3 units of float32
// away; that matters only beside the middle of two e4m3 values, which has these 20 bits, or below the smallest normal
// one, where middles lie elsewhere: there the divisions are done.
template <int kSize>
__device__ __forceinline__ void quotients(float (&v)[kSize], float scale) {
  constexpr uint32_t kRest = 0xfffffu, kMiddle = 0x80000u, kMargin = 4;
  constexpr float kLeast = 0x1.1p-6f;
  const float inverse = __fdiv_rn(1.0f, scale);
#pragma unroll
  for (int first = 0; first < kSize; first += 8) {
    float products[8];
    bool is_close = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      products[i] = v[first + i] * inverse;
      const uint32_t rest = __float_as_uint(products[i]) & kRest;
      is_close |= rest - (kMiddle - kMargin) <= 2 * kMargin || fabsf(products[i]) < kLeast;
    }
    if (is_close) {
#pragma unroll
      for (int i = 0; i < 8; ++i) products[i] = __fdiv_rn(v[first + i], scale);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) v[first + i] = products[i];
  }
}

}  // namespace fathom::cuda
