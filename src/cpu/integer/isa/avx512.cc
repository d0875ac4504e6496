// The kernels for x86-64-v4; src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsic headers of gcc 12 start registers from "undefined" ones and then warn about themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "cpu/integer/isa/four_avx512.h"

#include "cpu/integer/kernels.h"
#include "cpu/integer/matmul.h"
#include "cpu/integer/quantize.h"

namespace fathom::cpu::integer {
namespace {

// Pairs of 16-bit products, which 32 bits hold.
struct Avx512 : FourFloats {
  static constexpr int64_t kStep = 32;
  static constexpr int kMaxRows = 4;
  static constexpr bool kBias = false;
  using Operand = __m512i;
  using Weight = __m512i;
  using Sum = __m512i;

  static Sum zero() { return _mm512_setzero_si512(); }
  static Operand load_x(const int8_t* x) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static Weight load_w(const int8_t* w) { return load_x(w); }
  static Weight load_w_part(const int8_t* w, int64_t n) {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1);
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, w));
  }
  static Sum dot(Sum sum, Operand x, Weight w) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
  }
  static Four sums(const Sum (&four)[4]) { return totals(four); }
};

}  // namespace

const Kernels kAvx512 = {.matmul = &Matmul<Avx512>::run, .quantize_row = &Quantize<Avx512>::row};

}  // namespace fathom::cpu::integer
#endif
