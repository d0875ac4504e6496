#pragma once
// Vectors of eight floats: AVX2, FMA and F16C (x86-64-v3). Included by avx2.cc only; the unnamed
// namespace keeps every template over Vec inside that file.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

struct Vec {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  static constexpr bool kTightRegisters = true;  // see add_column
  static constexpr int kMaxRows = 3;
  static constexpr int columns(int rows) { return rows == 1 ? 8 : 4; }

  __m256 v;

  static Vec set1(float x) { return {_mm256_set1_ps(x)}; }
  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load(const uint16_t* p) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  // The value times 2^-8, which the caller's scale takes back: e4m3 moved into the fields of f16.
  static Vec load(const uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i high = _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
    const __m128i half = _mm_and_si128(_mm_srai_epi16(high, 1), _mm_set1_epi16(int16_t(0xBFFF)));
    return {_mm256_cvtph_ps(half)};
  }
  static void load_pair(const uint8_t* p, Vec (&v)[2]) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
    const __m256i half =
        _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(int16_t(0xBFFF)));
    v[0] = {_mm256_cvtph_ps(_mm256_castsi256_si128(half))};
    v[1] = {_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
  }
  static Vec load(const I4Pair* p) {
    const __m256i at_top = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256i shifted = _mm256_sllv_epi32(four_bytes(p), at_top);
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(shifted, 28))};
  }
  static void load_pair(const I4Pair* p, Vec (&v)[2]) {
    v[0] = load(p);
    v[1] = load(p + kLanes / 2);
  }
  // n is even.
  static Vec load_partial(const I4Pair* p, int64_t n) {
    I4Pair padded[kLanes / 2] = {};
    std::memcpy(padded, p, static_cast<size_t>(n / 2));
    return load(padded);
  }
  static Vec load(const U4Pair* p) {
    const __m256i at_bottom = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i shifted = _mm256_srlv_epi32(four_bytes(p), at_bottom);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(0x0F)))};
  }
  static float of_half(uint16_t bits) { return _cvtsh_ss(bits); }
  template <class T>
  static Vec load_partial(const T* p, int64_t n) {
    T padded[kLanes] = {};
    std::memcpy(padded, p, static_cast<size_t>(n) * sizeof(T));
    return load(padded);
  }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store_partial(float* p, int64_t n) const {
    float all[kLanes];
    store(all);
    std::memcpy(p, all, static_cast<size_t>(n) * sizeof(float));
  }
  void store_bf16(uint16_t* p) const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    r = _mm256_srli_epi32(_mm256_blendv_epi8(r, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  // sum[i][j] = fma(x[i], w, sum[i][j]) of all rows i, with w in memory. The compiler would load several columns at
  // once, and then twelve sums do not stay in sixteen registers.
  template <int kRows, int kColumns>
  [[gnu::always_inline]] static void add_column(const Vec (&x)[kRows], const float* w,
                                                Vec (&sum)[kRows][kColumns], int j) {
    typedef __m256 Unaligned __attribute__((aligned(4), may_alias));
    const Unaligned& from = *reinterpret_cast<const Unaligned*>(w);
    __m256 column;
    if constexpr (kRows == 1) {
      asm("vmovups %2, %1\n\tvfmadd231ps %1, %3, %0"
          : "+x"(sum[0][j].v), "=&x"(column)
          : "m"(from), "x"(x[0].v));
    } else if constexpr (kRows == 2) {
      asm("vmovups %3, %2\n\tvfmadd231ps %2, %4, %0\n\tvfmadd231ps %2, %5, %1"
          : "+x"(sum[0][j].v), "+x"(sum[1][j].v), "=&x"(column)
          : "m"(from), "x"(x[0].v), "x"(x[1].v));
    } else {
      static_assert(kRows == 3);
      asm("vmovups %4, %3\n\tvfmadd231ps %3, %5, %0\n\tvfmadd231ps %3, %6, %1\n\t"
          "vfmadd231ps %3, %7, %2"
          : "+x"(sum[0][j].v), "+x"(sum[1][j].v), "+x"(sum[2][j].v), "=&x"(column)
          : "m"(from), "x"(x[0].v), "x"(x[1].v), "x"(x[2].v));
    }
  }
  static Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  static Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  static Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  // b where the two do not compare, so a NaN in b survives.
  static Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  static Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
  static Vec round(Vec a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // 2^n for integral n in [-126, 128]; 128 gives infinity, NaN gives 1.
  static Vec exp2_integral(Vec n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
  }
  // Lane i of a where bit i is set, of b elsewhere.
  static Vec select(uint64_t lanes, Vec a, Vec b) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes & 0xFF)), bit);
    const __m256 mask = _mm256_castsi256_ps(_mm256_cmpeq_epi32(all, bit));
    return {_mm256_blendv_ps(b.v, a.v, mask)};
  }
  // value where x >= bound or x is NaN, else 0.
  static Vec zero_below(Vec x, float bound, Vec value) {
    return {_mm256_andnot_ps(_mm256_cmp_ps(x.v, _mm256_set1_ps(bound), _CMP_LT_OQ), value.v)};
  }
  // Nearest value of the e4m3 grid, ties to even; |a| <= 448 after rounding, or NaN.
  static Vec round_e4m3(Vec a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFFF)));
    const __m256 normal = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(~0xFFFFF)));
    const __m256 magic = _mm256_set1_ps(0x1.8p14f);
    const __m256 subnormal = _mm256_sub_ps(_mm256_add_ps(a.v, magic), magic);
    // "Not at least" is true for NaN as well, and NaN passes through the additions.
    const __m256 small = _mm256_cmp_ps(abs(a).v, _mm256_set1_ps(0x1p-6f), _CMP_NGE_UQ);
    return {_mm256_blendv_ps(normal, subnormal, small)};
  }
  static bool any_nan_f8(const uint8_t* p, int64_t n) {
    const __m256i sign = _mm256_set1_epi8(int8_t(0x80)), ones = _mm256_set1_epi8(-1);
    __m256i any = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
      any = _mm256_or_si256(any, _mm256_cmpeq_epi8(_mm256_or_si256(bytes, sign), ones));
    }
    bool found = _mm256_movemask_epi8(any) != 0;
    for (; i < n; ++i) found |= (p[i] & 0x7F) == 0x7F;
    return found;
  }
  // All lanes finite or -inf.
  static bool all_below_infinity(Vec a) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a.v, _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ)) ==
           0xFF;
  }
  float reduce_add() const {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static void reduce_add4(const Vec (&a)[4], float* sums) {
    for (int i = 0; i < 4; ++i) sums[i] = a[i].reduce_add();
  }
  float reduce_max() const {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  // Inlined early: GCC drops calls of what only prefetches.
  [[gnu::always_inline]] static void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
  }

 private:
  // Eight integers of four bits in every lane, the first in the lowest bits.
  static __m256i four_bytes(const void* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof(four));
    return _mm256_set1_epi32(four);
  }
};

}  // namespace
}  // namespace fathom::cpu
