#pragma once
// The inner loop of every matrix product: kRows rows of x times kColumns rows of w, one accumulator
// vector each, lanes along k. Both operands are read as they lie in memory; nothing is transposed.
//
// Every loop over the tile is unrolled: one that were not would force the accumulators into memory.
// Register use: kRows * kColumns accumulators + kRows of x + 1 of w.

#include <cstdint>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {

// How the weights of a type lie and what their loads give.
template <class W>
struct Stored {
  static constexpr int64_t kValues = 1;  // in an element
  static constexpr bool kScaled = false, kHasNan = false, kZeroPoints = false;
};
template <>
struct Stored<uint8_t> {
  static constexpr int64_t kValues = 1;
  static constexpr bool kScaled = true, kRowScales = false, kHasNan = true, kZeroPoints = false;
  static constexpr float kLoadFactor = 256.0f;  // loads give the value times 2^-8
};
template <>
struct Stored<I4Pair> {
  static constexpr int64_t kValues = 2;
  static constexpr bool kScaled = true, kRowScales = true, kHasNan = false, kZeroPoints = false;
  static constexpr float kLoadFactor = 1.0f;
};
template <>
struct Stored<U4Pair> {
  static constexpr int64_t kValues = 2;
  static constexpr bool kScaled = false, kHasNan = false, kZeroPoints = true;
};

// A weight is scale * q + offset of its group.
struct Affine {
  float scale = 0, offset = 0;
};

template <class V, int kRows, int kColumns>
struct DotTile {
  V acc[kRows][kColumns];

  // Where value k of a row lies.
  template <class W>
  [[gnu::always_inline]] static const W* at(const W* w, int64_t k) {
    return w + k / Stored<W>::kValues;
  }

  template <class W>
  static constexpr bool kPairs = sizeof(W) == 1 && kRows*(kColumns + 2) + 2 <= V::kRegisters;

  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) acc[i][j] = V::zero();
  }

  // One vector step at element k.
  template <class W>
  [[gnu::always_inline]] void step(const float* const (&x)[kRows], const W* const (&w)[kColumns],
                                   int64_t k) {
    V xs[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) xs[i] = V::load(x[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      if constexpr (V::kTightRegisters && sizeof(W) == sizeof(float)) {
        V::add_column(xs, w[j] + k, acc, j);
      } else {
        const V ws = V::load(at(w[j], k));
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) acc[i][j] = V::fma(xs[i], ws, acc[i][j]);
      }
    }
  }

  // Two steps: types narrower than float are widened faster by the pair.
  template <class W>
  [[gnu::always_inline]] void step_pair(const float* const (&x)[kRows],
                                        const W* const (&w)[kColumns], int64_t k) {
    V xs[kRows][2];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      xs[i][0] = V::load(x[i] + k);
      xs[i][1] = V::load(x[i] + k + V::kLanes);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      V ws[2];
      V::load_pair(at(w[j], k), ws);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
        acc[i][j] = V::fma(xs[i][1], ws[1], V::fma(xs[i][0], ws[0], acc[i][j]));
    }
  }

  // The last step, n < kLanes elements at k; the missing ones count as zero.
  template <class W>
  [[gnu::always_inline]] void partial_step(const float* const (&x)[kRows],
                                           const W* const (&w)[kColumns], int64_t k, int64_t n) {
    V xs[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) xs[i] = V::load_partial(x[i] + k, n);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const V ws = V::load_partial(at(w[j], k), n);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) acc[i][j] = V::fma(xs[i], ws, acc[i][j]);
    }
  }

  // Adds the products of elements [begin, end). Where ahead > 0, the cache lines `ahead` elements after
  // each line of w are fetched meanwhile: the rows of the next tile.
  template <class W>
  [[gnu::always_inline]] void add(const float* const (&x)[kRows], const W* const (&w)[kColumns],
                                  int64_t begin, int64_t end, int64_t ahead) {
    constexpr int64_t kLineElements = 64 / sizeof(W) * Stored<W>::kValues;
    constexpr int64_t kLine = kLineElements > V::kLanes ? kLineElements : V::kLanes;
    int64_t k = begin;
    for (; k + kLine <= end; k += kLine) {
      if (ahead > 0) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) V::prefetch(at(w[j], k + ahead));
      }
      // Pairs of x rows must fit the registers beside the accumulators.
      if constexpr (kPairs<W>) {
#pragma GCC unroll 8
        for (int64_t s = 0; s < kLine; s += 2 * V::kLanes) step_pair(x, w, k + s);
      } else {
#pragma GCC unroll 8
        for (int64_t s = 0; s < kLine; s += V::kLanes) step(x, w, k + s);
      }
    }
    for (; k + V::kLanes <= end; k += V::kLanes) step(x, w, k);
    if (k < end) partial_step(x, w, k, end - k);
  }

  // The same of [begin, end), whole vectors, with the weight of[j].scale * w + of[j].offset for each.
  template <class W>
  [[gnu::always_inline]] void add_scaled(const float* const (&x)[kRows],
                                         const W* const (&w)[kColumns], int64_t begin, int64_t end,
                                         const Affine (&of)[kColumns]) {
    for (int64_t k = begin; k < end; k += V::kLanes) {
      V xs[kRows];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) xs[i] = V::load(x[i] + k);
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        const V ws = V::fma(V::load(at(w[j], k)), V::set1(of[j].scale), V::set1(of[j].offset));
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) acc[i][j] = V::fma(xs[i], ws, acc[i][j]);
      }
    }
  }
};

}  // namespace fathom::cpu
