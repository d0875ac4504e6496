#pragma once
// Weights of four bits as bf16 values, which all of them are. Included by amx.cc and avx512_bf16.cc only.
//
// Sixty-four weights are a load, a shift, two lookups and two interleavings of bytes. Their order is that in which
// these leave them (kEvensFirst): rows of x are laid out in it, once, instead of the weights each time.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/f8_widen.h"

namespace fathom::cpu {
namespace {

// The two bytes of the bf16 value of each code, for every lane of 16 bytes.
struct PairBytes {
  alignas(64) uint8_t low[64] = {};
  alignas(64) uint8_t high[64] = {};
};

// Codes stand for code - offset; offset 0: for two's complement.
constexpr PairBytes make_pair_bytes(int offset) {
  // bf16 of 0 to 8.
  constexpr unsigned kMagnitudes[] = {0,      0x3F80, 0x4000, 0x4040, 0x4080,
                                      0x40A0, 0x40C0, 0x40E0, 0x4100};
  PairBytes bytes;
  for (int i = 0; i < 64; ++i) {
    const int code = i % 16;
    const int value = offset > 0 ? code - offset : code < 8 ? code : code - 16;
    const unsigned bits = value < 0 ? 0x8000 | kMagnitudes[-value] : kMagnitudes[value];
    bytes.low[i] = static_cast<uint8_t>(bits & 0xFF);
    bytes.high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return bytes;
}

// What u4 weights are less by, so that they are bf16 values with a sign as i4 ones.
inline constexpr int kU4Offset = 8;
constexpr PairBytes kI4Bytes = make_pair_bytes(0);
constexpr PairBytes kU4Bytes = make_pair_bytes(kU4Offset);

// Words of two vectors of sixteen elements each: the even ones of both, then the odd ones. Of 64 elements the first
// vector of a PackedStep has 0 to 15 and 32 to 47, the second has the others.
inline __m512i evens_first(__m512i words) {
  const __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,
                                         30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutexvar_epi16(order, words);
}

// Holds the tables in registers.
class PairWidener {
 public:
  explicit PairWidener(const PairBytes& bytes)
      : low_(_mm512_load_si512(bytes.low)), high_(_mm512_load_si512(bytes.high)) {}

  // Sixty-four weights.
  PackedStep load(const uint8_t* p) const {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // The first n, which is even; the others have code 0.
  PackedStep load_partial(const uint8_t* p, int64_t n) const {
    return widen(_mm256_maskz_loadu_epi8((__mmask32{1} << (n / 2)) - 1, p));
  }

  // Of 0 to 15, a code in each byte.
  PackedStep of_codes(__m512i codes) const {
    const __m512i low = _mm512_shuffle_epi8(low_, codes), high = _mm512_shuffle_epi8(high_, codes);
    return {{_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)}};
  }

 private:
  PackedStep widen(__m256i pairs) const {
    const __m512i upper_shift = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
    const __m512i both = _mm512_broadcast_i64x4(pairs);
    return of_codes(_mm512_and_si512(_mm512_srlv_epi64(both, upper_shift), _mm512_set1_epi8(0x0F)));
  }

  __m512i low_, high_;
};

// Rows of x that are e4m3 values, in the order of the weights.
struct I4Rows {
  // From the order of F8Rows.
  static void reorder(int64_t dim, float* q) {
    uint16_t* const words = reinterpret_cast<uint16_t*>(q);
    // Lanes 0 and 2 of the first vector have elements 0 to 7 and 32 to 39, those of the second the eight behind.
    const __m512i first = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    for (int64_t k = 0; k < dim; k += kPackedStep) {
      const PackedStep step = PackedStep::load(words + k);
      const auto half = [&](__m512i lanes) {
        return evens_first(_mm512_permutex2var_epi64(step.v[0], lanes, step.v[1]));
      };
      PackedStep{{half(first), half(second)}}.store(words + k);
    }
  }

  static void quantize_row(const float* x, int64_t dim, float* q, float* scale) {
    F8Rows::quantize_row(x, dim, q, scale);
    reorder(dim, q);
  }
  static void grid_row(const uint8_t* x, int64_t dim, float* q) {
    F8Rows::grid_row(x, dim, q);
    reorder(dim, q);
  }
};

}  // namespace
}  // namespace fathom::cpu
