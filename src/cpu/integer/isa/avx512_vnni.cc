// The kernels for x86-64-v4 with VNNI; src/cpu/module.cmake gives this file its flags.
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

// The instruction multiplies unsigned with signed bytes: x + 128 stands for x, and 128 times the sum of w is taken away
// again. Both may leave 32 bits on the way, the difference does not, and integers wrap.
struct Avx512Vnni : FourFloats {
  static constexpr int64_t kStep = 64;
  static constexpr int kMaxRows = 4;
  static constexpr bool kBias = true;
  using Operand = __m512i;
  using Weight = __m512i;
  using Sum = __m512i;

  static __m512i offset() { return _mm512_set1_epi8(static_cast<char>(0x80)); }
  static Sum zero() { return _mm512_setzero_si512(); }
  static Operand load_x(const int8_t* x) {
    return _mm512_xor_si512(_mm512_loadu_si512(x), offset());
  }
  static Weight load_w(const int8_t* w) { return _mm512_loadu_si512(w); }
  static Weight load_w_part(const int8_t* w, int64_t n) {
    return _mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, w);
  }
  static Sum dot(Sum sum, Operand x, Weight w) { return _mm512_dpbusd_epi32(sum, x, w); }
  static Sum bias(Sum sum, Weight w) { return _mm512_dpbusd_epi32(sum, offset(), w); }
  static Sum unbias(Sum sum, Sum bias) { return _mm512_sub_epi32(sum, bias); }
  static Four sums(const Sum (&four)[4]) { return totals(four); }
};

}  // namespace

const Kernels kAvx512Vnni = {.matmul = &Matmul<Avx512Vnni>::run,
                             .quantize_row = &Quantize<Avx512Vnni>::row};

}  // namespace fathom::cpu::integer
#endif
