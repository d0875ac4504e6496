#pragma once
// Totals of four registers of 512 bits.

#include "cpu/integer/isa/four.h"

namespace fathom::cpu::integer {
namespace {

[[gnu::always_inline]] inline __m128 totals(const __m512i (&v)[4]) {
  const __m512i ab =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i cd =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i all =
      _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  return add_lanes(
      _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1)));
}

}  // namespace
}  // namespace fathom::cpu::integer
