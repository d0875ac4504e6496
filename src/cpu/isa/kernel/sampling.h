#pragma once
// Weights of tokens for sampling: the operations of ops/sample_weight.h, one after the other, on a vector of
// tokens. A share (weight * 2^40, rounded down) is summed as two integers of 20 bits, so that lanes of 32
// bits hold the sums of a block.
//
// Written in compiler vectors: every instruction set has these operations.

#include <cstdint>

#include "cpu/isa/kernels.h"
#include "ops/sample_weight.h"

namespace fathom::cpu {

template <class V>
struct Sampling {
  static constexpr int64_t kLanes = V::kLanes;
  using Floats = typename V::Floats;
  using Ints = typename V::Ints;

  // n < kLanes: the rest is -inf, whose weight is 0.
  [[gnu::always_inline]] static Floats load(const float* p, int64_t n) {
    Floats x = Floats{} - __builtin_inff();
    if (n == kLanes) {
      __builtin_memcpy(&x, p, sizeof(x));
    } else {
      for (int64_t i = 0; i < n; ++i) x[i] = p[i];
    }
    return x;
  }
  template <class Lanes, class T>
  [[gnu::always_inline]] static void store(Lanes v, T* p, int64_t n) {
    if (n == kLanes) {
      __builtin_memcpy(p, &v, sizeof(v));
    } else {
      for (int64_t i = 0; i < n; ++i) p[i] = v[i];
    }
  }
  // f(k, n) for n <= kLanes tokens from k on.
  template <class F>
  [[gnu::always_inline]] static void each(int64_t num, const F& f) {
    int64_t k = 0;
    for (; k + kLanes <= num; k += kLanes) f(k, kLanes);
    if (k < num) f(k, num - k);
  }

  [[gnu::always_inline]] static Floats exponent(Floats logits, const SampleTile& tile) {
    const Floats difference = logits - tile.largest;
    return difference * tile.factor;
  }

  [[gnu::always_inline]] static Floats weight(Floats t) {
    const Floats shifted = t + ops::kSampleRound;
    const Floats f = t - (shifted - ops::kSampleRound);
    Floats p = Floats{} + ops::kSampleExp2[5];
#pragma GCC unroll 8
    for (int i = 4; i >= 0; --i) {
      const Floats product = p * f;
      p = product + ops::kSampleExp2[i];
    }
    const Floats product = p * f;
    const Ints bits =
        reinterpret_cast<Ints>(product + 1.0f) + (reinterpret_cast<Ints>(shifted) << 23);
    return reinterpret_cast<Floats>(bits & (t > ops::kSampleLowest));
  }

  struct ShareSum {
    Ints high{}, low{};
    [[gnu::always_inline]] void add(Floats weights) {
      const Floats scaled = weights * 0x1p20f;
      const Ints whole = __builtin_convertvector(scaled, Ints);
      const Floats rest = (scaled - __builtin_convertvector(whole, Floats)) * 0x1p20f;
      high += whole;
      low += __builtin_convertvector(rest, Ints);
    }
    uint64_t total() const {
      uint64_t sums[2] = {};
      for (int64_t i = 0; i < kLanes; ++i) {
        sums[0] += static_cast<uint64_t>(high[i]);
        sums[1] += static_cast<uint64_t>(low[i]);
      }
      return (sums[0] << 20) + sums[1];
    }
  };

  static uint64_t weights(const SampleTile& tile) {
    ShareSum sum;
    each(tile.num, [&](int64_t k, int64_t n) {
      const Floats w = weight(exponent(load(tile.logits + k, n), tile));
      store(w, tile.weights + k, n);
      sum.add(w);
    });
    return sum.total();
  }

  static void bins(const SampleTile& tile, int32_t* bins) {
    each(tile.num, [&](int64_t k, int64_t n) {
      const Floats t = exponent(load(tile.logits + k, n), tile);
      const Ints inside = t > ops::kSampleLowest;
      const Floats place = t * -static_cast<float>(kSampleBinsPerOctave);
      const Ints bin = __builtin_convertvector(
          reinterpret_cast<Floats>(reinterpret_cast<Ints>(place) & inside), Ints);
      store((bin & inside) | (~inside & kNumSampleBins), bins + k, n);
    });
  }

  static uint64_t keep(const SampleTile& tile, float level, float min_weight) {
    ShareSum sum;
    each(tile.num, [&](int64_t k, int64_t n) {
      Floats w = load(tile.weights + k, n);
      const Ints kept = (load(tile.logits + k, n) >= level) & (w >= min_weight);
      w = reinterpret_cast<Floats>(reinterpret_cast<Ints>(w) & kept);
      store(w, tile.weights + k, n);
      sum.add(w);
    });
    return sum.total();
  }
};

}  // namespace fathom::cpu
