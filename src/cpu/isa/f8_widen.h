#pragma once
// e4m3 values as bf16 values, which all of them are, NaN too (VPERMI2B: AVX-512 VBMI), and rows of x that hold them.
// Included by avx512_bf16.cc and amx.cc only.
//
// Sixty-four values are a load, two lookups, the sign and two interleavings of bytes.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/kernel/rows.h"
#include "cpu/isa/kernels.h"
#include "cpu/isa/vec_avx512.h"

namespace fathom::cpu {
namespace {

// The two bytes of the bf16 value of each e4m3 code without its sign.
struct F8Bytes {
  alignas(64) uint8_t low[128] = {};
  alignas(64) uint8_t high[128] = {};
};

constexpr unsigned bf16_of_f8(unsigned code) {
  const unsigned exponent = code >> 3, mantissa = code & 7;
  if (code == 0x7F) return 0x7FC0;
  if (exponent > 0) return (exponent + 120) << 7 | mantissa << 4;
  if (mantissa == 0) return 0;
  const unsigned top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
  return (top + 118) << 7 | (mantissa << (7 - top) & 0x7F);
}

constexpr F8Bytes make_f8_bytes() {
  F8Bytes bytes;
  for (unsigned code = 0; code < 128; ++code) {
    bytes.low[code] = static_cast<uint8_t>(bf16_of_f8(code) & 0xFF);
    bytes.high[code] = static_cast<uint8_t>(bf16_of_f8(code) >> 8);
  }
  return bytes;
}

constexpr F8Bytes kF8Bytes = make_f8_bytes();

// Sixty-four values as bf16 in the order in which interleaving bytes leaves them: the first vector has elements
// 16 q to 16 q + 7, q = 0 to 3, the second has the others. Packed rows lie in it.
inline constexpr int64_t kPackedStep = 64;
struct PackedStep {
  __m512i v[2];

  static PackedStep load(const uint16_t* p) {
    return {{_mm512_loadu_si512(p), _mm512_loadu_si512(p + 32)}};
  }
  void store(uint16_t* p) const {
    _mm512_storeu_si512(p, v[0]);
    _mm512_storeu_si512(p + 32, v[1]);
  }
  static PackedStep of_floats(const float* p) {
    const __m512i low = halves(p), high = halves(p + 32);
    return {{_mm512_shuffle_i32x4(low, high, _MM_SHUFFLE(2, 0, 2, 0)),
             _mm512_shuffle_i32x4(low, high, _MM_SHUFFLE(3, 1, 3, 1))}};
  }

 private:
  static __m512i halves(const float* p) {
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p)));
  }
};

// Holds the tables in registers.
class F8Widener {
 public:
  F8Widener()
      : low_{_mm512_load_si512(kF8Bytes.low), _mm512_load_si512(kF8Bytes.low + 64)},
        high_{_mm512_load_si512(kF8Bytes.high), _mm512_load_si512(kF8Bytes.high + 64)},
        sign_(_mm512_set1_epi8(int8_t(0x80))) {}

  PackedStep load(const uint8_t* p) const { return widen(_mm512_loadu_si512(p)); }
  // The first n; the others are 0.
  PackedStep load_partial(const uint8_t* p, int64_t n) const {
    return widen(_mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, p));
  }
  PackedStep widen(__m512i codes) const {
    constexpr int kFirstOrBothOthers = 0xF8;
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], codes, high_[1]);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, sign_, kFirstOrBothOthers);
    return {{_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)}};
  }

 private:
  __m512i low_[2], high_[2], sign_;
};

// Rows of x that are e4m3 values.
struct F8Rows {
  // Zeros follow the last value to the end of the step.
  static void grid_row(const uint8_t* x, int64_t dim, float* q) {
    const F8Widener widener;
    uint16_t* const out = reinterpret_cast<uint16_t*>(q);
    for (int64_t k = 0; k < dim; k += kPackedStep)
      (dim - k >= kPackedStep ? widener.load(x + k) : widener.load_partial(x + k, dim - k))
          .store(out + k);
  }

  // A packed row is half as long as the floats, so it may lie where they do: what is written was read before.
  static void quantize_row(const float* x, int64_t dim, float* q, float* scale) {
    uint16_t* const out = reinterpret_cast<uint16_t*>(q);
    for (int64_t begin = 0, b = 0; begin < dim; begin += kScaleBlock, ++b) {
      const int64_t size = begin + kScaleBlock < dim ? kScaleBlock : dim - begin;
      alignas(64) float grid[kScaleBlock] = {};
      Rows<Vec>::quantize(x + begin, size, grid, scale + b);
      for (int64_t k = 0; k < size; k += kPackedStep)
        PackedStep::of_floats(grid + k).store(out + begin + k);
    }
  }
};

}  // namespace
}  // namespace fathom::cpu
