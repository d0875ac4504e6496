#pragma once
// Four floats and the totals of four registers of 32-bit integers, which every x86 kernel ends with.

#include <immintrin.h>

namespace fathom::cpu::integer {
namespace {

struct FourFloats {
  using Four = __m128;
  static Four set1(float v) { return _mm_set1_ps(v); }
  static Four load(const float* v) { return _mm_loadu_ps(v); }
  static Four add(Four a, Four b) { return _mm_add_ps(a, b); }
  static Four mul(Four a, Four b) { return _mm_mul_ps(a, b); }
  static void store(Four a, float* to) { _mm_storeu_ps(to, a); }
};

// Of each 128-bit lane: the totals of the lane in a, b, c, d.
[[gnu::always_inline]] inline __m256i totals_of_lanes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

[[gnu::always_inline]] inline __m128 add_lanes(__m256i totals) {
  return _mm_cvtepi32_ps(
      _mm_add_epi32(_mm256_castsi256_si128(totals), _mm256_extracti128_si256(totals, 1)));
}

}  // namespace
}  // namespace fathom::cpu::integer
