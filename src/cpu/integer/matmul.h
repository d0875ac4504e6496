#pragma once
// One tile of a product with i8 weights: kRows rows of x times four rows of w, integer sums in registers, lanes along
// k. Both operands are read as they lie in memory.
//
// V has: kStep elements of k at once; Sum, integers in lanes; Operand of x, load_x(); Weight, load_w() and
// load_w_part() with zeros behind; dot(sum, x, w); sums(four) -> Four, the totals of four Sums; Four of floats with
// set1, add, mul (each rounded), from_ints, store.
// A V whose dot() is off by what only w decides has kBias, bias(w_sum, w), and unbias(sum, w_sum).
//
// Floors: few rows of x, the bytes of w once; many, 2 * rows * num_w * in operations of the integer units.

#include <cstdint>

#include "cpu/integer/kernels.h"

namespace fathom::cpu::integer {

template <class V>
struct Matmul {
  static constexpr int kColumns = 4;
  using Sum = typename V::Sum;
  using Four = typename V::Four;

  // Rows of w past the end stand for the last one; what they give is dropped.
  struct Columns {
    const int8_t* w[kColumns];
    int count;
  };

  template <int kRows>
  struct Sums {
    Sum acc[kRows][kColumns];
  };

  // Sums of products of elements [begin, end).
  template <int kRows>
  [[gnu::always_inline]] static void add(const int8_t* const (&x)[kRows], const Columns& columns,
                                         int64_t begin, int64_t end, Sums<kRows>& total) {
    Sum bias[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) bias[j] = V::zero();
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) total.acc[i][j] = V::zero();
    const auto step = [&](int64_t k, auto load_w) __attribute__((always_inline)) {
      typename V::Operand xs[kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) xs[i] = V::load_x(x[i] + k);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        const typename V::Weight w = load_w(columns.w[j] + k);
        if constexpr (V::kBias) bias[j] = V::bias(bias[j], w);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) total.acc[i][j] = V::dot(total.acc[i][j], xs[i], w);
      }
    };
    int64_t k = begin;
    for (; k + V::kStep <= end; k += V::kStep)
      step(
          k, [](const int8_t* w) __attribute__((always_inline)) { return V::load_w(w); });
    if (k < end)
      step(
          k, [n = end - k](const int8_t* w)
                 __attribute__((always_inline)) { return V::load_w_part(w, n); });
    if constexpr (V::kBias) {
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kColumns; ++j) total.acc[i][j] = V::unbias(total.acc[i][j], bias[j]);
    }
  }

  static void put(const Tile& t, int64_t row, int64_t column, int count, const Four& values) {
    float out[kColumns];
    V::store(values, out);
    float* const to = t.out[row] + t.out_begin + column;
    for (int j = 0; j < count; ++j) to[j] = t.accumulate ? to[j] + out[j] : out[j];
  }

  template <int kRows>
  static void channels(const Tile& t, int64_t row, int64_t column, const Columns& columns,
                       const int8_t* const (&x)[kRows]) {
    Sums<kRows> sums;
    add<kRows>(x, columns, 0, t.in, sums);
    float scales[kColumns];
    for (int j = 0; j < kColumns; ++j)
      scales[j] = t.w_scale[column + (j < columns.count ? j : columns.count - 1)];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Four scale = V::mul(V::set1(t.x_scale[row + i][0]), V::load(scales));
      put(t, row + i, column, columns.count, V::mul(V::sums(sums.acc[i]), scale));
    }
  }

  template <int kRows>
  static void blocks(const Tile& t, int64_t row, int64_t column, const Columns& columns,
                     const int8_t* const (&x)[kRows]) {
    Four total[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) total[i] = V::set1(0.0f);
    for (int64_t begin = 0, b = 0; begin < t.in; begin += kScaleBlock, ++b) {
      Sums<kRows> sums;
      add<kRows>(x, columns, begin, begin + kScaleBlock < t.in ? begin + kScaleBlock : t.in, sums);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const Four scale = V::set1(t.x_scale[row + i][b] * t.w_scale[b]);
        total[i] = V::add(total[i], V::mul(V::sums(sums.acc[i]), scale));
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) put(t, row + i, column, columns.count, total[i]);
  }

  template <int kRows>
  static void rows(const Tile& t, int64_t row, int64_t column, const Columns& columns) {
    const int8_t* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = t.x[row + i];
    if (t.of_channels) {
      channels<kRows>(t, row, column, columns, x);
    } else {
      blocks<kRows>(t, row, column, columns, x);
    }
  }

  template <int kRows>
  static int64_t at_most(int64_t left, const Tile& t, int64_t row, int64_t column,
                         const Columns& columns) {
    if constexpr (kRows > 1)
      if (left < kRows) return at_most<kRows - 1>(left, t, row, column, columns);
    rows<kRows>(t, row, column, columns);
    return kRows;
  }

  static void run(const Tile& t) {
    for (int64_t column = 0; column < t.num_w; column += kColumns) {
      Columns columns;
      columns.count = t.num_w - column < kColumns ? static_cast<int>(t.num_w - column) : kColumns;
      for (int j = 0; j < kColumns; ++j)
        columns.w[j] = t.w + (column + (j < columns.count ? j : columns.count - 1)) * t.w_stride;
      for (int64_t row = 0; row < t.num_x;)
        row += at_most<V::kMaxRows>(t.num_x - row, t, row, column, columns);
    }
  }
};

}  // namespace fathom::cpu::integer
