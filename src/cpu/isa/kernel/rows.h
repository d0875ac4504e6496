#pragma once
// Kernels over one row: normalisation, activation, quantisation, conversion, softmax pieces.

#include <cstdint>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {

// exp(x) with a relative error near 1e-7 (minimax polynomial of degree 7 after reduction by ln 2); 0 below
// -87.3, infinity above 88.7, NaN stays.
template <class V>
[[gnu::always_inline]] inline V exp_of(V x) {
  constexpr float kLowest = -87.3365f, kHighest = 89.0f;
  const V clamped = V::min(V::set1(kHighest), V::max(V::set1(kLowest), x));
  const V n = V::round(V::mul(clamped, V::set1(1.44269504f)));
  // ln 2 in two parts, the first exact in few bits.
  V r = V::fma(n, V::set1(-0.693359375f), clamped);
  r = V::fma(n, V::set1(2.12194440e-4f), r);
  V p = V::set1(1.9875691500e-4f);
  p = V::fma(p, r, V::set1(1.3981999507e-3f));
  p = V::fma(p, r, V::set1(8.3334519073e-3f));
  p = V::fma(p, r, V::set1(4.1665795894e-2f));
  p = V::fma(p, r, V::set1(1.6666665459e-1f));
  p = V::fma(p, r, V::set1(5.0000001201e-1f));
  p = V::add(V::fma(V::mul(r, r), p, r), V::set1(1.0f));
  return V::zero_below(x, kLowest, V::mul(p, V::exp2_integral(n)));
}

template <class V>
float exp_of_one(float x) {
  float lanes[V::kLanes];
  exp_of(V::set1(x)).store(lanes);
  return lanes[0];
}

template <class V>
struct Rows {
  static constexpr int64_t kLanes = V::kLanes;

  // Calls f(k, n) for every vector of a row: n lanes from element k, n < kLanes in the last call only.
  template <class F>
  [[gnu::always_inline]] static void each(int64_t dim, const F& f) {
    int64_t k = 0;
    for (; k + kLanes <= dim; k += kLanes) f(k, kLanes);
    if (k < dim) f(k, dim - k);
  }
  template <class T>
  [[gnu::always_inline]] static V load(const T* p, int64_t n) {
    return n == kLanes ? V::load(p) : V::load_partial(p, n);
  }
  [[gnu::always_inline]] static void store(V v, float* p, int64_t n) {
    if (n == kLanes) {
      v.store(p);
    } else {
      v.store_partial(p, n);
    }
  }

  static void quantize(const float* x, int64_t dim, float* q, float* scale) {
    for (int64_t begin = 0, b = 0; begin < dim; begin += kScaleBlock, ++b) {
      const int64_t size = begin + kScaleBlock < dim ? kScaleBlock : dim - begin;
      V amax = V::set1(1e-10f);
      each(size,
           [&](int64_t k, int64_t n) { amax = V::max(V::abs(load(x + begin + k, n)), amax); });
      scale[b] = amax.reduce_max() / 448.0f;
      const V divisor = V::set1(scale[b]), limit = V::set1(448.0f), low = V::set1(-448.0f);
      each(size, [&](int64_t k, int64_t n) {
        const V ratio = V::div(load(x + begin + k, n), divisor);
        store(V::round_e4m3(V::min(limit, V::max(low, ratio))), q + begin + k, n);
      });
    }
  }

  template <class W>
  static void scale_by_weight(const float* v, const W* weight, float factor,
                              const RmsNormRow& row) {
    each(row.dim, [&](int64_t k, int64_t n) {
      const V normed = V::mul(load(v + k, n), V::set1(factor));
      store(V::mul(normed, load(weight + k, n)), row.out + k, n);
    });
  }

  static void rms_norm(const RmsNormRow& row) {
    const float* v = row.x;
    if (row.residual != nullptr) {
      each(row.dim, [&](int64_t k, int64_t n) {
        store(V::add(load(row.residual + k, n), load(row.x + k, n)), row.residual + k, n);
      });
      v = row.residual;
    }
    V squares = V::zero();
    each(row.dim, [&](int64_t k, int64_t n) {
      const V x = load(v + k, n);
      squares = V::fma(x, x, squares);
    });
    const float mean = squares.reduce_add() / static_cast<float>(row.dim);
    const float factor = 1.0f / __builtin_sqrtf(mean + row.eps);
    if (row.weight_kind == WeightKind::kF32) {
      scale_by_weight(v, static_cast<const float*>(row.weight), factor, row);
    } else {
      scale_by_weight(v, static_cast<const uint16_t*>(row.weight), factor, row);
    }
  }

  static void silu_mul(const float* gate, const float* up, int64_t dim, float* out) {
    each(dim, [&](int64_t k, int64_t n) {
      const V v = load(gate + k, n);
      const V denominator = V::add(V::set1(1.0f), exp_of(V::sub(V::zero(), v)));
      store(V::mul(V::div(v, denominator), load(up + k, n)), out + k, n);
    });
  }

  static void add_scaled(const float* x, float weight, bool first, int64_t dim, float* out) {
    each(dim, [&](int64_t k, int64_t n) {
      const V sum = first ? V::zero() : load(out + k, n);
      store(V::fma(load(x + k, n), V::set1(weight), sum), out + k, n);
    });
  }

  static void divide(const float* x, float divisor, int64_t dim, float* out) {
    each(dim, [&](int64_t k, int64_t n) {
      store(V::div(load(x + k, n), V::set1(divisor)), out + k, n);
    });
  }

  static void widen(const void* x, WeightKind kind, int64_t dim, float* out) {
    if (kind == WeightKind::kF32) {
      each(dim, [&](int64_t k, int64_t n) {
        store(load(static_cast<const float*>(x) + k, n), out + k, n);
      });
    } else {
      each(dim, [&](int64_t k, int64_t n) {
        store(load(static_cast<const uint16_t*>(x) + k, n), out + k, n);
      });
    }
  }

  static void narrow(const float* x, int64_t dim, uint16_t* out) {
    each(dim, [&](int64_t k, int64_t n) {
      if (n == kLanes) return load(x + k, n).store_bf16(out + k);
      uint16_t padded[kLanes];
      load(x + k, n).store_bf16(padded);
      for (int64_t i = 0; i < n; ++i) out[k + i] = padded[i];
    });
  }

  // The e4m3 byte of a value on its grid: 2^-120 moves the exponent's bias from 127 to 7, exactly for
  // subnormals too, and the byte is the upper bits. The sign comes from `sign`: the grid has lost that of 0.
  [[gnu::always_inline]] static uint8_t f8_bits(float value, float sign) {
    const float moved = value * 0x1p-120f;
    uint32_t bits, sign_bits;
    __builtin_memcpy(&bits, &moved, sizeof(bits));
    __builtin_memcpy(&sign_bits, &sign, sizeof(sign_bits));
    const uint32_t magnitude = value != value ? 0x7Fu : bits >> 20 & 0x7Fu;
    return static_cast<uint8_t>((sign_bits >> 24 & 0x80u) | magnitude);
  }

  static void narrow_f8(const float* x, float factor, int64_t dim, uint8_t* out) {
    const V limit = V::set1(448.0f), low = V::set1(-448.0f);
    float grid[kScaleBlock];
    for (int64_t begin = 0; begin < dim; begin += kScaleBlock) {
      const int64_t size = begin + kScaleBlock < dim ? kScaleBlock : dim - begin;
      each(size, [&](int64_t k, int64_t n) {
        const V scaled = V::mul(load(x + begin + k, n), V::set1(factor));
        store(V::round_e4m3(V::min(limit, V::max(low, scaled))), grid + k, n);
      });
      for (int64_t i = 0; i < size; ++i) out[begin + i] = f8_bits(grid[i], x[begin + i]);
    }
  }

  static void grid(const uint8_t* x, int64_t dim, float* q) { widen_f8(x, nullptr, dim, q); }

  // scale: null = 1.
  static void widen_f8(const uint8_t* x, const float* scale, int64_t dim, float* out) {
    for (int64_t begin = 0, b = 0; begin < dim; begin += kScaleBlock, ++b) {
      const int64_t size = begin + kScaleBlock < dim ? kScaleBlock : dim - begin;
      // Two factors: their product may overflow. Each is a power of two, so the order does not matter.
      const V load_factor = V::set1(256.0f), factor = V::set1(scale == nullptr ? 1.0f : scale[b]);
      each(size, [&](int64_t k, int64_t n) {
        store(V::mul(V::mul(load(x + begin + k, n), load_factor), factor), out + begin + k, n);
      });
      if (V::any_nan_f8(x + begin, size)) [[unlikely]]
        for (int64_t i = begin; i < begin + size; ++i)
          if ((x[i] & 0x7F) == 0x7F) out[i] = __builtin_nanf("");
    }
  }

  static float largest_magnitude(const float* x, int64_t dim) {
    V largest = V::zero();
    each(dim, [&](int64_t k, int64_t n) { largest = V::max(V::abs(load(x + k, n)), largest); });
    return largest.reduce_max();
  }

  static bool range(const float* x, int64_t dim, float* min_out, float* max_out) {
    V low = V::set1(__builtin_inff()), high = V::set1(-__builtin_inff());
    bool good = true;
    each(dim, [&](int64_t k, int64_t n) {
      // A partial load pads with zeros, which must not count as elements.
      const auto padded = [&](V pad) {
        return n == kLanes ? V::load(x + k)
                           : V::select((uint64_t{1} << n) - 1, V::load_partial(x + k, n), pad);
      };
      const V v = padded(high);
      good &= V::all_below_infinity(v);
      high = V::max(high, v);
      low = V::min(low, padded(low));
    });
    *max_out = high.reduce_max();
    *min_out = -V::sub(V::zero(), low).reduce_max();
    return good;
  }

  static float sum_exp(const float* x, float shift, float scale, int64_t dim) {
    V sum = V::zero();
    each(dim, [&](int64_t k, int64_t n) {
      const V e = exp_of(V::mul(V::sub(load(x + k, n), V::set1(shift)), V::set1(scale)));
      sum = V::add(sum, V::select((uint64_t{1} << n) - 1, e, V::zero()));
    });
    return sum.reduce_add();
  }

  // Several streams at once, each fetched ahead: one alone does not fill the memory channels.
  static float read(const float* data, int64_t count) {
    constexpr int kStreams = 8;
    constexpr int64_t kAhead = 512;
    const int64_t part = count / kStreams;
    V sum[kStreams];
    for (int s = 0; s < kStreams; ++s) sum[s] = V::zero();
    for (int64_t k = 0; k < part; k += 16)
#pragma GCC unroll 8
      for (int s = 0; s < kStreams; ++s) {
        V::prefetch(data + s * part + k + kAhead);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 16; i += kLanes)
          sum[s] = V::add(sum[s], V::load(data + s * part + k + i));
      }
    for (int s = 1; s < kStreams; ++s) sum[0] = V::add(sum[0], sum[s]);
    return sum[0].reduce_add();
  }
};

}  // namespace fathom::cpu
