#pragma once
// A row's values, or those of 128 channels, to integers of 8 bits (ops/linear.h).
//
//   ToI8 to;  for (float v : mine) to.see(v);
//   to.meet_warp();  to.find_scale();                 // of all lanes' values
//   q[i] = to.value(mine[i]);

#include <cstdint>

namespace fathom::cuda {

// To integers of 8 bits. Magnitudes compare as their bits do, and NaN is above infinity: of either the scale is NaN
// and the integers are 0.
struct ToI8 {
  uint32_t most = 0;
  float scale = 0;
  __device__ __forceinline__ void see(float v) {
    most = max(most, __float_as_uint(v) & 0x7fffffffu);
  }
  __device__ __forceinline__ void meet_warp() { most = __reduce_max_sync(0xffffffffu, most); }
  __device__ __forceinline__ void find_scale() {
    constexpr uint32_t kInfinity = 0x7f800000u, kNan = 0x7fffffffu;
    const float amax = fmaxf(__uint_as_float(most), 1e-10f);
    scale = most >= kInfinity ? __uint_as_float(kNan) : __fdiv_rn(amax, 127.0f);
  }
  __device__ __forceinline__ uint8_t value(float v) const {
    return static_cast<uint8_t>(isnan(scale) ? 0 : __float2int_rn(__fdiv_rn(v, scale)));
  }
};

}  // namespace fathom::cuda
