// The kernels for any processor.
#include "cpu/integer/kernels.h"
#include "cpu/integer/matmul.h"
#include "cpu/integer/quantize.h"

namespace fathom::cpu::integer {
namespace {

struct Scalar {
  static constexpr int64_t kStep = 16;
  static constexpr int kMaxRows = 1;
  static constexpr bool kBias = false;
  struct Operand {
    int8_t v[kStep];
  };
  using Weight = Operand;
  struct Sum {
    int32_t v[kStep];
  };
  struct Four {
    float v[4];
  };

  static Sum zero() { return {}; }
  static Operand load_x(const int8_t* x) {
    Operand out;
    __builtin_memcpy(out.v, x, kStep);
    return out;
  }
  static Weight load_w(const int8_t* w) { return load_x(w); }
  static Weight load_w_part(const int8_t* w, int64_t n) {
    Weight out{};
    __builtin_memcpy(out.v, w, static_cast<unsigned long>(n));
    return out;
  }
  static Sum dot(Sum sum, const Operand& x, const Weight& w) {
    for (int64_t i = 0; i < kStep; ++i) sum.v[i] += int32_t{x.v[i]} * w.v[i];
    return sum;
  }
  static Four sums(const Sum (&four)[4]) {
    Four out;
    for (int j = 0; j < 4; ++j) {
      int32_t total = 0;
      for (const int32_t v : four[j].v) total += v;
      out.v[j] = static_cast<float>(total);
    }
    return out;
  }
  static Four set1(float v) { return {{v, v, v, v}}; }
  static Four load(const float* v) { return {{v[0], v[1], v[2], v[3]}}; }
  static Four add(Four a, const Four& b) {
    for (int j = 0; j < 4; ++j) a.v[j] += b.v[j];
    return a;
  }
  static Four mul(Four a, const Four& b) {
    for (int j = 0; j < 4; ++j) a.v[j] *= b.v[j];
    return a;
  }
  static void store(const Four& a, float* to) { __builtin_memcpy(to, a.v, sizeof a.v); }
};

}  // namespace

const Kernels kPortable = {.matmul = &Matmul<Scalar>::run, .quantize_row = &Quantize<Scalar>::row};

}  // namespace fathom::cpu::integer
