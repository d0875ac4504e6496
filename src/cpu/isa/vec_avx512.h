#pragma once
// Vectors of sixteen floats: AVX-512 F, BW, DQ, VL (x86-64-v4). Included by avx512.cc only; the unnamed
// namespace keeps every template over Vec inside that file.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

struct Vec {
  typedef float Floats __attribute__((vector_size(64)));
  typedef int32_t Ints __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  static constexpr bool kTightRegisters = false;  // see add_column
  static constexpr int kMaxRows = 6;
  static constexpr int columns(int rows) { return rows <= 3 ? 8 : 4; }

  __m512 v;

  static Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const uint16_t* p) {
    return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // The value times 2^-8, which the caller's scale takes back: e4m3 moved into the fields of f16.
  static Vec load(const uint8_t* p) {
    return widen_f8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void load_pair(const uint8_t* p, Vec (&v)[2]) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m512i high = _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    const __m512i half =
        _mm512_and_si512(_mm512_srai_epi16(high, 1), _mm512_set1_epi16(int16_t(0xBFFF)));
    v[0] = {_mm512_cvtph_ps(_mm512_castsi512_si256(half))};
    v[1] = {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1))};
  }
  static Vec load(const I4Pair* p) {
    return widen_i4(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static void load_pair(const I4Pair* p, Vec (&v)[2]) {
    v[0] = load(p);
    v[1] = load(p + kLanes / 2);
  }
  // n is even.
  static Vec load_partial(const I4Pair* p, int64_t n) {
    return widen_i4(_mm_maskz_loadu_epi8(first(n / 2), p));
  }
  static Vec load(const U4Pair* p) {
    const __m128i bytes = nibbles(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
  }
  static float of_half(uint16_t bits) { return _cvtsh_ss(bits); }
  static Vec load_partial(const float* p, int64_t n) {
    return {_mm512_maskz_loadu_ps(first(n), p)};
  }
  static Vec load_partial(const uint16_t* p, int64_t n) {
    return widen_bf16(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static Vec load_partial(const uint8_t* p, int64_t n) {
    return widen_f8(_mm_maskz_loadu_epi8(first(n), p));
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_partial(float* p, int64_t n) const { _mm512_mask_storeu_ps(p, first(n), v); }
  void store_bf16(uint16_t* p) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i r = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, sum, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
  }

  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  static Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  // b where the two do not compare, so a NaN in b survives.
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
  static Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // 2^n for integral n in [-126, 128]; 128 gives infinity, NaN gives 1.
  static Vec exp2_integral(Vec n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
  }
  // Lane i of a where bit i is set, of b elsewhere.
  static Vec select(uint64_t lanes, Vec a, Vec b) {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(lanes), b.v, a.v)};
  }
  // value where x >= bound or x is NaN, else 0.
  static Vec zero_below(Vec x, float bound, Vec value) {
    const __mmask16 keep = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ);
    return {_mm512_maskz_mov_ps(keep, value.v)};
  }
  // Nearest value of the e4m3 grid, ties to even; |a| <= 448 after rounding, or NaN.
  static Vec round_e4m3(Vec a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFFF)));
    const __m512 normal = _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(~0xFFFFF)));
    const __m512 magic = _mm512_set1_ps(0x1.8p14f);
    const __m512 subnormal = _mm512_sub_ps(_mm512_add_ps(a.v, magic), magic);
    // "Not at least" is true for NaN as well, and NaN passes through the additions.
    const __mmask16 small = _mm512_cmp_ps_mask(abs(a).v, _mm512_set1_ps(0x1p-6f), _CMP_NGE_UQ);
    return {_mm512_mask_blend_ps(small, normal, subnormal)};
  }
  static bool any_nan_f8(const uint8_t* p, int64_t n) {
    const __m512i sign = _mm512_set1_epi8(int8_t(0x80)), ones = _mm512_set1_epi8(-1);
    __mmask64 any = 0;
    for (int64_t i = 0; i < n; i += 64) {
      const __mmask64 valid = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
      const __m512i bytes = _mm512_maskz_loadu_epi8(valid, p + i);
      any |= _mm512_cmpeq_epi8_mask(_mm512_or_si512(bytes, sign), ones);
    }
    return any != 0;
  }
  // All lanes finite or -inf.
  static bool all_below_infinity(Vec a) {
    return _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ) == 0xFFFF;
  }
  float reduce_add() const {
    const __m256 low = _mm512_castps512_ps256(v), high = _mm512_extractf32x8_ps(v, 1);
    const __m256 half = _mm256_add_ps(low, high);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // reduce_add() of four vectors at once, in the same tree.
  static void reduce_add4(const Vec (&a)[4], float* sums) {
    const __m512 ab = add_halves(a[0].v, a[1].v), cd = add_halves(a[2].v, a[3].v);
    // Quarter i now holds the four partial sums of vector i.
    const __m512 quarters = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                                          _mm512_shuffle_f32x4(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
    const __m512 pairs = _mm512_add_ps(quarters, _mm512_permute_ps(quarters, 0x4E));
    const __m512 all = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xB1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, all)));
  }
  float reduce_max() const {
    const __m256 low = _mm512_castps512_ps256(v), high = _mm512_extractf32x8_ps(v, 1);
    const __m256 half = _mm256_max_ps(low, high);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  // Inlined early: GCC drops calls of what only prefetches.
  [[gnu::always_inline]] static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }

 private:
  // Lower plus upper half of a, then of b.
  static __m512 add_halves(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
  }
  static __mmask16 first(int64_t n) { return static_cast<__mmask16>((uint32_t{1} << n) - 1); }
  static Vec widen_bf16(__m256i values) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16))};
  }
  // Of the low eight bytes.
  static __m128i nibbles(__m128i packed) {
    const __m128i mask = _mm_set1_epi8(0x0F);
    const __m128i even = _mm_and_si128(packed, mask);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
    return _mm_unpacklo_epi8(even, odd);
  }
  static Vec widen_i4(__m128i packed) {
    const __m128i sign = _mm_set1_epi8(0x08);
    const __m128i bytes = _mm_sub_epi8(_mm_xor_si128(nibbles(packed), sign), sign);
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  static Vec widen_f8(__m128i bytes) {
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    const __m256i half =
        _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(int16_t(0xBFFF)));
    return {_mm512_cvtph_ps(half)};
  }
};

}  // namespace
}  // namespace fathom::cpu
