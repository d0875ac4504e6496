#pragma once
// Products of e4m3 or i4 weights with rows of x that are e4m3 values, by dot products of bf16 pairs (VDPBF16PS:
// AVX-512 BF16). All of them are bf16 values, and the product of two is exact in float32. A vector has eight elements
// of each weight row, of which a lane adds two. Included by avx512_bf16.cc only.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/f8_widen.h"
#include "cpu/isa/four_dot.h"
#include "cpu/isa/i4_widen.h"

namespace fathom::cpu {
namespace {

struct PackedForm {
  using X = uint16_t;
  static constexpr int64_t kStep = kPackedStep;
  static constexpr int kVectors = 8;
  static constexpr bool kScaled = true, kPadded = true, kWidenLate = false;

  [[gnu::always_inline]] static Vec add(__m512i x, __m512i w, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w))};
  }
};

struct F8Form : PackedForm {
  using Stored = uint8_t;
  static constexpr WeightKind kKind = WeightKind::kF8;
  static constexpr int64_t kBits = 8;
  static constexpr int kChunks = 4;
  F8Widener widener;

  // Sixteen elements of a row become two vectors.
  static constexpr int64_t x_offset(int i) { return i % 2 * 32 + i / 2 * 8; }
  [[gnu::always_inline]] static __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] void widen(__m512i bytes, __m512i (&out)[2]) const {
    const PackedStep step = widener.widen(bytes);
    out[0] = step.v[0];
    out[1] = step.v[1];
  }
  // Of rows [row, row + 4), four lanes each; there are `count`.
  static Vec scales(const MatmulTile& t, int64_t /*row*/, int64_t /*count*/, int64_t block) {
    return Vec::set1(t.w_scale[block]);
  }
};

struct I4Form : PackedForm {
  using Stored = I4Pair;
  static constexpr WeightKind kKind = WeightKind::kI4;
  static constexpr int64_t kBits = 4;
  static constexpr int kChunks = 2;
  PairWidener widener{kI4Bytes};

  // Thirty-two elements become four vectors.
  static constexpr int64_t x_offset(int i) { return i % 4 * 16 + i / 4 * 8; }
  [[gnu::always_inline]] static __m512i load(const uint8_t* p) {
    return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] void widen(__m512i bytes, __m512i (&out)[4]) const {
    const __m512i mask = _mm512_set1_epi8(0x0F);
    const PackedStep even = widener.of_codes(_mm512_and_si512(bytes, mask));
    const PackedStep odd = widener.of_codes(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask));
    out[0] = even.v[0];
    out[1] = odd.v[0];
    out[2] = even.v[1];
    out[3] = odd.v[1];
  }
  static Vec scales(const MatmulTile& t, int64_t row, int64_t count, int64_t block) {
    float of_rows[kFour];
    for (int64_t i = 0; i < kFour; ++i)
      of_rows[i] = t.w_scale[(row + (i < count ? i : count - 1)) * t.w_scale_stride + block];
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return {_mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_loadu_ps(of_rows)))};
  }
};

}  // namespace
}  // namespace fathom::cpu
