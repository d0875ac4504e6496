// The kernels for x86-64-v3; src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#include "cpu/integer/isa/four.h"

#include "cpu/integer/kernels.h"
#include "cpu/integer/matmul.h"
#include "cpu/integer/quantize.h"

namespace fathom::cpu::integer {
namespace {

// Pairs of 16-bit products, which 32 bits hold.
struct Avx2 : FourFloats {
  static constexpr int64_t kStep = 16;
  static constexpr int kMaxRows = 2;
  static constexpr bool kBias = false;
  using Operand = __m256i;
  using Weight = __m256i;
  using Sum = __m256i;

  static Sum zero() { return _mm256_setzero_si256(); }
  static Operand load_x(const int8_t* x) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  static Weight load_w(const int8_t* w) { return load_x(w); }
  static Weight load_w_part(const int8_t* w, int64_t n) {
    int8_t part[kStep] = {};
    __builtin_memcpy(part, w, static_cast<unsigned long>(n));
    return load_x(part);
  }
  static Sum dot(Sum sum, Operand x, Weight w) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
  }
  static Four sums(const Sum (&four)[4]) {
    return add_lanes(totals_of_lanes(four[0], four[1], four[2], four[3]));
  }
};

}  // namespace

const Kernels kAvx2 = {.matmul = &Matmul<Avx2>::run, .quantize_row = &Quantize<Avx2>::row};

}  // namespace fathom::cpu::integer
#endif
