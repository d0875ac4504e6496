#pragma once
// Quantises rows for products with i8 weights, in loops that compilers turn into vector code. V only keeps the
// instruction sets' instantiations apart.

#include <cstdint>

#include "cpu/integer/kernels.h"

namespace fathom::cpu::integer {

template <class V>
struct Quantize {
  static constexpr float kMaxI8 = 127.0f, kMinAmax = 1e-10f;
  // Adding it leaves no bits below the integer: the sum is rounded to nearest, half to even.
  static constexpr float kRound = 0x1.8p23f;
  static constexpr int64_t kChunk =
      128;  // values that wait in registers or cache until x has been read

  // Magnitudes compare as their bits do, and NaN is above infinity.
  static uint32_t largest_bits(const float* x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
    return most;
  }

  static void values(const float* x, int64_t n, float scale, int8_t* q) {
    int8_t chunk[kChunk];
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t size = n - begin < kChunk ? n - begin : kChunk;
      for (int64_t i = 0; i < size; ++i) {
        const float rounded = x[begin + i] / scale + kRound;
        const int32_t value =
            __builtin_bit_cast(int32_t, rounded) - __builtin_bit_cast(int32_t, kRound);
        chunk[i] = static_cast<int8_t>(value);
      }
      __builtin_memcpy(q + begin, chunk, static_cast<unsigned long>(size));
    }
  }

  static void row(const float* x, int64_t dim, int64_t channels, int8_t* q, float* scale) {
    constexpr uint32_t kInfinity = 0x7f800000u;
    for (int64_t begin = 0; begin < dim; begin += channels, ++scale) {
      const int64_t size = dim - begin < channels ? dim - begin : channels;
      const uint32_t bits = largest_bits(x + begin, size);
      if (bits >= kInfinity) {
        *scale = __builtin_nanf("");
        __builtin_memset(q + begin, 0, static_cast<unsigned long>(size));
        continue;
      }
      const float amax = __builtin_bit_cast(float, bits);
      *scale = (amax > kMinAmax ? amax : kMinAmax) / kMaxI8;
      values(x + begin, size, *scale, q + begin);
    }
    __builtin_memset(q + dim, 0, static_cast<unsigned long>(row_bytes(dim) - dim));
  }
};

}  // namespace fathom::cpu::integer
