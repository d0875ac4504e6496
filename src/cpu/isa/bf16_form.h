#pragma once
// Products of bf16 weights with float32 rows of x by float32 vectors. A vector has four elements of each weight row.
// Thirty-two weights are widened by two interleavings with zeros. Included by avx512.cc only.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/four_dot.h"

namespace fathom::cpu {
namespace {

struct Bf16Form {
  using Stored = uint16_t;
  using X = float;
  static constexpr int64_t kBits = 16, kStep = 32;
  static constexpr int kChunks = 4, kVectors = 8;
  static constexpr bool kScaled = false, kPadded = false, kWidenLate = true;

  static constexpr int64_t x_offset(int i) { return i * 4; }
  [[gnu::always_inline]] static __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] static __m512i widen_piece(__m512i words, int piece) {
    return piece == 0 ? _mm512_unpacklo_epi16(_mm512_setzero_si512(), words)
                      : _mm512_unpackhi_epi16(_mm512_setzero_si512(), words);
  }
  [[gnu::always_inline]] void widen(__m512i words, __m512i (&out)[2]) const {
    out[0] = widen_piece(words, 0);
    out[1] = widen_piece(words, 1);
  }
  [[gnu::always_inline]] static Vec add(__m512i x, __m512i w, Vec sum) {
    return Vec::fma({_mm512_castsi512_ps(x)}, {_mm512_castsi512_ps(w)}, sum);
  }
};

}  // namespace
}  // namespace fathom::cpu
