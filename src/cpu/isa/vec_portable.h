#pragma once
// Vectors of four floats in compiler extensions: SSE2 on x86-64, NEON on aarch64, plain code elsewhere.
// Included by portable.cc only; the unnamed namespace keeps every template over Vec inside that file.

#include <cstdint>
#include <cstring>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

struct Vec {
  typedef float Floats __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 16;
  static constexpr bool kTightRegisters = false;  // see add_column
  static constexpr int kMaxRows = 3;
  static constexpr int columns(int rows) { return rows == 1 ? 8 : 4; }

  Floats v;

  static Vec set1(float x) { return {Floats{x, x, x, x}}; }
  static Vec zero() { return set1(0.0f); }
  static Vec load(const float* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof(r.v));
    return r;
  }
  static Vec load(const uint16_t* p) {
    const Ints bits = {p[0], p[1], p[2], p[3]};
    return {reinterpret_cast<Floats>(bits << 16)};
  }
  // The value times 2^-8, which the caller's scale takes back.
  static Vec load(const uint8_t* p) {
    return {Floats{f8_value(p[0]), f8_value(p[1]), f8_value(p[2]), f8_value(p[3])}};
  }
  static void load_pair(const uint8_t* p, Vec (&v)[2]) {
    v[0] = load(p);
    v[1] = load(p + kLanes);
  }
  static Vec load(const I4Pair* p) {
    return {Floats{even(p[0]), odd(p[0]), even(p[1]), odd(p[1])}};
  }
  static void load_pair(const I4Pair* p, Vec (&v)[2]) {
    v[0] = load(p);
    v[1] = load(p + kLanes / 2);
  }
  // n is even.
  static Vec load_partial(const I4Pair* p, int64_t n) {
    I4Pair padded[kLanes / 2] = {};
    for (int64_t i = 0; i < n / 2; ++i) padded[i] = p[i];
    return load(padded);
  }
  static Vec load(const U4Pair* p) {
    const auto low = [](U4Pair pair) { return static_cast<float>(pair.bits & 15); };
    const auto high = [](U4Pair pair) { return static_cast<float>(pair.bits >> 4); };
    return {Floats{low(p[0]), high(p[0]), low(p[1]), high(p[1])}};
  }
  static float of_half(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 31,
                   fraction = bits & 1023u;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return sign == 0 ? magnitude : -magnitude;
    }
    const uint32_t wide = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  template <class T>
  static Vec load_partial(const T* p, int64_t n) {
    T padded[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) padded[i] = p[i];
    return load(padded);
  }
  void store(float* p) const { std::memcpy(p, &v, sizeof(v)); }
  void store_partial(float* p, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  }
  void store_bf16(uint16_t* p) const {
    for (int i = 0; i < kLanes; ++i) p[i] = bf16_bits(v[i]);
  }

  static Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
  static Vec add(Vec a, Vec b) { return {a.v + b.v}; }
  static Vec sub(Vec a, Vec b) { return {a.v - b.v}; }
  static Vec mul(Vec a, Vec b) { return {a.v * b.v}; }
  static Vec div(Vec a, Vec b) { return {a.v / b.v}; }
  // b where the two do not compare, so a NaN in b survives.
  static Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
  static Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
  static Vec abs(Vec a) {
    return {reinterpret_cast<Floats>(reinterpret_cast<Ints>(a.v) & 0x7FFFFFFF)};
  }
  // To the nearest integer, |a| < 2^22.
  static Vec round(Vec a) {
    const Floats magic = set1(0x1.8p23f).v;
    return {(a.v + magic) - magic};
  }
  // 2^n for integral n in [-126, 128]; 128 gives infinity, NaN gives 1.
  static Vec exp2_integral(Vec n) {
    Floats r;
    for (int i = 0; i < kLanes; ++i) {
      const int32_t exponent = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) + 127 : 127;
      const int32_t bits = static_cast<int32_t>(static_cast<uint32_t>(exponent) << 23);
      std::memcpy(reinterpret_cast<char*>(&r) + 4 * i, &bits, 4);
    }
    return {r};
  }
  // Lane i of a where bit i is set, of b elsewhere.
  static Vec select(uint64_t lanes, Vec a, Vec b) {
    Floats r;
    for (int i = 0; i < kLanes; ++i) r[i] = (lanes >> i) & 1 ? a.v[i] : b.v[i];
    return {r};
  }
  // value where x >= bound or x is NaN, else 0.
  static Vec zero_below(Vec x, float bound, Vec value) {
    return {x.v < set1(bound).v ? zero().v : value.v};
  }
  // Nearest value of the e4m3 grid, ties to even; |a| <= 448 after rounding, or NaN.
  static Vec round_e4m3(Vec a) {
    const Ints bits = reinterpret_cast<Ints>(a.v);
    const Ints rounded = (bits + 0x7FFFF + ((bits >> 20) & 1)) & ~0xFFFFF;
    const Floats magic = set1(0x1.8p14f).v;
    const Floats normal = reinterpret_cast<Floats>(rounded), subnormal = (a.v + magic) - magic;
    const Floats r = abs(a).v < set1(0x1p-6f).v ? subnormal : normal;
    return {a.v == a.v ? r : a.v};
  }
  static bool any_nan_f8(const uint8_t* p, int64_t n) {
    bool any = false;
    for (int64_t i = 0; i < n; ++i) any |= (p[i] & 0x7F) == 0x7F;
    return any;
  }
  // All lanes finite or -inf.
  static bool all_below_infinity(Vec a) {
    bool all = true;
    for (int i = 0; i < kLanes; ++i) all &= a.v[i] < __builtin_inff();
    return all;
  }
  float reduce_add() const { return (v[0] + v[2]) + (v[1] + v[3]); }
  static void reduce_add4(const Vec (&a)[4], float* sums) {
    for (int i = 0; i < 4; ++i) sums[i] = a[i].reduce_add();
  }
  float reduce_max() const {
    float m = v[0];
    for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
    return m;
  }
  // Inlined early: GCC drops calls of what only prefetches.
  [[gnu::always_inline]] static void prefetch(const void* p) { __builtin_prefetch(p); }

 private:
  static float f8_value(uint8_t byte) {
    const uint32_t sign = uint32_t{byte & 0x80u} << 24, magnitude = byte & 0x7Fu;
    // The exponent bias goes from 7 to 127 by a multiplication, which is exact for subnormals too.
    const uint32_t bits = magnitude << 20 | sign;
    float x;
    std::memcpy(&x, &bits, 4);
    return x * 0x1p112f;
  }
  static float even(I4Pair pair) {
    return static_cast<float>(static_cast<int8_t>(pair.bits << 4) >> 4);
  }
  static float odd(I4Pair pair) { return static_cast<float>(static_cast<int8_t>(pair.bits) >> 4); }
  static uint16_t bf16_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
};

}  // namespace
}  // namespace fathom::cpu
