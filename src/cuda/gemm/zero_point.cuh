#pragma once
// ZeroPoint: how integers of 4 bits with a scale and a zero point become bf16: (q - zero point) * scale, rounded once.
//
//   const ZeroPoint point(scale | zero << 16);                    // both f16
//   const uint32_t two = point.scaled(kBf16Of128 | q0 | q1 << 16);
//   const uint4 eight = point.expanded(word);                     // of a word of eight, in order
//
// Internal to cuda/.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/convert.cuh"

namespace fathom::cuda {

// 128 as bf16, twice: with n in its low bits it is 128 + n.
inline constexpr uint32_t kBf16Of128 = 0x43004300u;

// A scale as the sum of two bf16 values, which it is exactly, and 128 + the zero point; each twice.
struct ZeroPoint {
  uint32_t high, low, zero;

  __device__ __forceinline__ explicit ZeroPoint(uint32_t value) {
    const __half2 both = *reinterpret_cast<const __half2*>(&value);
    const float scale = __low2float(both);
    high = floats_to_bf16x2(scale, scale);
    const float rest = scale - bf16x2_low(high);
    low = floats_to_bf16x2(rest, rest);
    zero = kBf16Of128 + __half2uint_rn(__high2half(both)) * 0x00010001u;
  }
  // Of two integers, each plus 128.
  __device__ __forceinline__ uint32_t scaled(uint32_t n) const {
    uint32_t out;
    asm("{\n.reg .b32 n, rest;\n"
        "sub.rn.bf16x2 n, %1, %2;\n"
        "mul.rn.bf16x2 rest, n, %4;\n"
        "fma.rn.bf16x2 %0, n, %3, rest;\n}"
        : "=r"(out)
        : "r"(n), "r"(zero), "r"(high), "r"(low));
    return out;
  }
  // Channels (i, i + 4) of a word of eight.
  __device__ __forceinline__ uint32_t values(uint32_t word, int i) const {
    return scaled((word >> (4 * i) & 0x000f000fu) | kBf16Of128);
  }
  // Eight channels, in order.
  __device__ __forceinline__ uint4 expanded(uint32_t word) const {
    const uint32_t v[4] = {values(word, 0), values(word, 1), values(word, 2), values(word, 3)};
    constexpr uint32_t kLow = 0x5410, kHigh = 0x7632;
    return {__byte_perm(v[0], v[1], kLow), __byte_perm(v[2], v[3], kLow),
            __byte_perm(v[0], v[1], kHigh), __byte_perm(v[2], v[3], kHigh)};
  }
};

}  // namespace fathom::cuda
