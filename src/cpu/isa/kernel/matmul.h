#pragma once
// One tile of a matrix product (MatmulTile in kernels.h).
//
// Few rows of x: memory-bound. Every weight row is read once, straight from memory, and widened in the
// registers; the second group of x rows finds it in the first-level cache.
// Many rows: compute-bound. Blocks of [kTileRows, kDepth] weights are widened to float once and used by
// all rows. A product that needs only one block keeps its accumulators in registers; otherwise the
// accumulator vectors wait in the workspace between blocks of k. The order of sums is always the one of
// the first form.

#include <cstdint>

#include "cpu/isa/kernel/dot_tile.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {

// Depth of a widened block: [kTileRows, kDepth] floats are 32 KiB, which the first-level cache nearly holds while the
// rows of x pass by.
inline constexpr int64_t kDepth = 256;
// Between the rows of a widened block, so that rows of a power of two do not share their cache sets.
inline constexpr int64_t kRowGap = 16;

template <class V>
struct Matmul {
  static constexpr int64_t kColumnGroup = 8;

  static void put(const MatmulTile& t, int64_t row, int64_t column, float sum) {
    float& out = t.out[row][t.out_begin + column];
    out = t.accumulate ? out + sum : sum;
  }

  template <class W>
  [[gnu::always_inline]] static const W* at(const void* w, int64_t k) {
    return static_cast<const W*>(w) + k / Stored<W>::kValues;
  }

  // f(i, j, scale) of one block of k, all rows of x and of weights of a tile.
  template <class W, int kRows, int kColumns, class F>
  [[gnu::always_inline]] static void with_scales(const MatmulTile& t, int64_t row, int64_t column,
                                                 int64_t block, const F& f) {
    constexpr float kFactor = Stored<W>::kLoadFactor;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float x_scale = t.x_scale[row + i][block];
      if constexpr (Stored<W>::kRowScales) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j)
          f(i, j, V::set1(x_scale * t.w_scale[(column + j) * t.w_scale_stride + block] * kFactor));
      } else {
        const V scale = V::set1(x_scale * t.w_scale[block] * kFactor);
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) f(i, j, scale);
      }
    }
  }
  // The same where the type is known from the tile only.
  template <int kRows, int kColumns, class F>
  [[gnu::always_inline]] static void with_scales_of_kind(const MatmulTile& t, int64_t row,
                                                         int64_t column, int64_t block,
                                                         const F& f) {
    if (t.kind == WeightKind::kI4) {
      with_scales<I4Pair, kRows, kColumns>(t, row, column, block, f);
    } else {
      with_scales<uint8_t, kRows, kColumns>(t, row, column, block, f);
    }
  }
  static bool is_scaled(const MatmulTile& t) {
    return t.kind == WeightKind::kF8 || t.kind == WeightKind::kI4;
  }

  // How many elements ahead of their use weights are fetched: the next tile, but far enough for memory to
  // answer where rows are short. Rows follow each other, so any distance covers all of them.
  template <class W, int kColumns>
  static int64_t prefetch_ahead(const MatmulTile& t) {
    constexpr int64_t kLeast = (int64_t{16} << 10) / int64_t{sizeof(W)} * Stored<W>::kValues;
    return kColumns * t.w_stride > kLeast ? kColumns * t.w_stride : kLeast;
  }

  // put() of kColumns accumulators from a column on.
  template <int kColumns>
  [[gnu::always_inline]] static void put_sums(const MatmulTile& t, int64_t row, int64_t column,
                                              const V (&acc)[kColumns]) {
    if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4) {
        const V four[4] = {acc[j], acc[j + 1], acc[j + 2], acc[j + 3]};
        float sums[4];
        V::reduce_add4(four, sums);
        for (int i = 0; i < 4; ++i) put(t, row, column + j + i, sums[i]);
      }
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) put(t, row, column + j, acc[j].reduce_add());
    }
  }

  template <class W, int kRows, int kColumns>
  static void direct_tile(const MatmulTile& t, int64_t row, int64_t column) {
    const float* x[kRows];
    const W* w[kColumns];
    for (int i = 0; i < kRows; ++i) x[i] = t.x[row + i];
    for (int j = 0; j < kColumns; ++j) w[j] = at<W>(t.w, (column + j) * t.w_stride);
    DotTile<V, kRows, kColumns> total;
    total.clear();
    if constexpr (Stored<W>::kZeroPoints) {
      add_groups<W, kRows, kColumns>(t, column, x, w, total);
    } else if constexpr (Stored<W>::kScaled) {
      add_blocks<W, kRows, kColumns>(t, {.row = row, .column = column}, x, w, total);
    } else {
      // One row asks for memory in order as fast as the processor's own prefetcher follows, which ours would disturb.
      total.add(x, w, 0, t.in, kRows == 1 ? 0 : prefetch_ahead<W, kColumns>(t));
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) put_sums<kColumns>(t, row + i, column, total.acc[i]);
  }

  // Columns whose weights [begin, end) hold a NaN become NaN, which the loads of e4m3 do not see.
  template <int kRows, int kColumns>
  [[gnu::always_inline]] static void put_nan(const uint8_t* const (&w)[kColumns], int64_t begin,
                                             int64_t end, DotTile<V, kRows, kColumns>& block) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
      if (V::any_nan_f8(w[j] + begin, end - begin)) [[unlikely]] {
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) block.acc[i][j] = V::set1(__builtin_nanf(""));
      }
  }

  // The first row of x and of weights of a tile.
  struct Corner {
    int64_t row = 0, column = 0;
  };

  // total += (sum over one block of k) * scale of x * scale of w, block after block.
  template <class W, int kRows, int kColumns>
  [[gnu::always_inline]] static void add_blocks(const MatmulTile& t, Corner corner,
                                                const float* const (&x)[kRows],
                                                const W* const (&w)[kColumns],
                                                DotTile<V, kRows, kColumns>& total) {
    for (int64_t begin = 0, b = 0; begin < t.in; begin += kScaleBlock, ++b) {
      const int64_t end = begin + kScaleBlock < t.in ? begin + kScaleBlock : t.in;
      DotTile<V, kRows, kColumns> block;
      block.clear();
      block.add(x, w, begin, end, prefetch_ahead<W, kColumns>(t));
      if constexpr (Stored<W>::kHasNan) put_nan<kRows, kColumns>(w, begin, end, block);
      with_scales<W, kRows, kColumns>(
          t, corner.row, corner.column,
          b, [&](int i, int j, V scale) __attribute__((always_inline)) {
            total.acc[i][j] = V::fma(block.acc[i][j], scale, total.acc[i][j]);
          });
    }
  }

  // Of a group of one weight row. Both products and the sum are exact.
  [[gnu::always_inline]] static Affine affine_of(const MatmulTile& t, int64_t column,
                                                 int64_t group) {
    const int64_t groups = t.in / t.zero_channels;
    const uint16_t* of_group = t.w_zeros + column * 2 * groups + group;
    const float scale = V::of_half(of_group[0]);
    return {.scale = scale, .offset = -V::of_half(of_group[groups]) * scale};
  }

  template <class W, int kRows, int kColumns>
  [[gnu::always_inline]] static void add_groups(const MatmulTile& t, int64_t column,
                                                const float* const (&x)[kRows],
                                                const W* const (&w)[kColumns],
                                                DotTile<V, kRows, kColumns>& total) {
    for (int64_t begin = 0, g = 0; begin < t.in; begin += t.zero_channels, ++g) {
      Affine of[kColumns];
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        of[j] = affine_of(t, column + j, g);
        if constexpr (kRows > 1) V::prefetch(at<W>(w[j], begin + prefetch_ahead<W, kColumns>(t)));
      }
      total.add_scaled(x, w, begin, begin + t.zero_channels, of);
    }
  }

  template <class W, int kRows>
  static void direct_rows(const MatmulTile& t, int64_t row, int64_t begin, int64_t end) {
    constexpr int kColumns = V::columns(kRows);
    int64_t column = begin;
    for (; column + kColumns <= end; column += kColumns)
      direct_tile<W, kRows, kColumns>(t, row, column);
    for (; column < end; ++column) direct_tile<W, kRows, 1>(t, row, column);
  }

  template <class W>
  static void direct(const MatmulTile& t) {
    for (int64_t begin = 0; begin < t.num_w; begin += kColumnGroup) {
      const int64_t end = begin + kColumnGroup < t.num_w ? begin + kColumnGroup : t.num_w;
      for (int64_t row = 0; row < t.num_x;)
        row += with_rows(t.num_x - row, [&](auto rows) {
          direct_rows<W, decltype(rows)::kValue>(t, row, begin, end);
        });
    }
  }

  // The weights that are widened after a block: they are fetched into the second-level cache while its products are
  // made, some lines with each tile of rows.
  struct NextBlock {
    const char* w = nullptr;
    int64_t row_bytes = 0;  // from one weight row to the next
    int64_t lines = 0;      // of a weight row
    int64_t row_tiles = 1;

    template <int kColumns>
    [[gnu::always_inline]] void fetch(int64_t column, int64_t row_tile) const {
      const int64_t end = (row_tile + 1) * lines / row_tiles;
      for (int64_t line = row_tile * lines / row_tiles; line < end; ++line)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j)
          __builtin_prefetch(w + (column + j) * row_bytes + line * 64, 0, 2);
    }
  };

  // A widened block of k and where it lies.
  struct Block {
    const float* w = nullptr;  // [num_w, end - begin], rows w_stride elements apart
    int64_t w_stride = 0;
    float* acc = nullptr;  // [num_x, kTileRows, kLanes]; null when this block is the only one
    int64_t begin = 0, end = 0;
    NextBlock next;
  };

  // Where one block of k is all there is.
  template <int kRows, int kColumns>
  [[gnu::always_inline]] static void finish_tile(const MatmulTile& t, int64_t row, int64_t column,
                                                 DotTile<V, kRows, kColumns>& tile) {
    if (is_scaled(t)) {
      with_scales_of_kind<kRows, kColumns>(
          t, row, column, 0, [&](int i, int j, V scale) __attribute__((always_inline)) {
            tile.acc[i][j] = V::fma(tile.acc[i][j], scale, V::zero());
          });
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) put_sums<kColumns>(t, row + i, column, tile.acc[i]);
  }

  template <int kRows, int kColumns>
  static void wide_tile(const MatmulTile& t, const Block& b, int64_t row, int64_t column) {
    const float* x[kRows];
    const float* w[kColumns];
    for (int i = 0; i < kRows; ++i) x[i] = t.x[row + i] + b.begin;
    for (int j = 0; j < kColumns; ++j) w[j] = b.w + (column + j) * b.w_stride;
    DotTile<V, kRows, kColumns> tile;
    if (b.acc == nullptr) {
      tile.clear();
      tile.add(x, w, 0, b.end, 0);
      return finish_tile(t, row, column, tile);
    }
    float* acc = b.acc + (row * kTileRows + column) * V::kLanes;
    const auto at = [acc](int i, int j) { return acc + (i * kTileRows + j) * V::kLanes; };
    if (!is_scaled(t)) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) tile.acc[i][j] = V::load(at(i, j));
      tile.add(x, w, 0, b.end - b.begin, 0);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) tile.acc[i][j].store(at(i, j));
      return;
    }
    for (int64_t k = b.begin; k < b.end; k += kScaleBlock) {
      const int64_t end = k + kScaleBlock < b.end ? k + kScaleBlock : b.end;
      tile.clear();
      tile.add(x, w, k - b.begin, end - b.begin, 0);
      with_scales_of_kind<kRows, kColumns>(
          t, row, column,
          k / kScaleBlock, [&](int i, int j, V scale) __attribute__((always_inline)) {
            V::fma(tile.acc[i][j], scale, V::load(at(i, j))).store(at(i, j));
          });
    }
  }

  template <int kRows>
  static void wide_rows(const MatmulTile& t, const Block& b, int64_t row, int64_t row_tile) {
    constexpr int kColumns = V::columns(kRows);
    int64_t column = 0;
    for (; column + kColumns <= t.num_w; column += kColumns) {
      b.next.template fetch<kColumns>(column, row_tile);
      wide_tile<kRows, kColumns>(t, b, row, column);
    }
    for (; column < t.num_w; ++column) wide_tile<kRows, 1>(t, b, row, column);
  }

  // Values [begin, end) of weight row j, whole groups.
  template <class W>
  static void widen_groups(const MatmulTile& t, int64_t j, int64_t begin, int64_t end, float* out) {
    for (int64_t k = begin; k < end; k += t.zero_channels) {
      const Affine affine = affine_of(t, j, k / t.zero_channels);
      const V scale = V::set1(affine.scale), offset = V::set1(affine.offset);
      for (int64_t i = k; i < k + t.zero_channels; i += V::kLanes)
        V::fma(V::load(at<W>(t.w, j * t.w_stride + i)), scale, offset).store(out + i - begin);
    }
  }

  // `count` values of a weight row as floats, from w on.
  template <class W>
  static void widen_row(const W* w, int64_t count, float* row) {
    int64_t k = 0;
    if constexpr (sizeof(W) == 1) {
      for (; k + 2 * V::kLanes <= count; k += 2 * V::kLanes) {
        V pair[2];
        V::load_pair(at<W>(w, k), pair);
        pair[0].store(row + k);
        pair[1].store(row + k + V::kLanes);
      }
    }
    for (; k + V::kLanes <= count; k += V::kLanes) V::load(at<W>(w, k)).store(row + k);
    if (k < count) V::load_partial(at<W>(w, k), count - k).store(row + k);
    if constexpr (Stored<W>::kHasNan)
      for (k = 0; k < count; k += kScaleBlock)
        if (V::any_nan_f8(w + k, count - k < kScaleBlock ? count - k : kScaleBlock)) [[unlikely]]
          row[k] = __builtin_nanf("");
  }

  // Those of every weight row.
  template <class W>
  static void widen(const MatmulTile& t, int64_t begin, int64_t end, int64_t stride, float* out) {
    for (int64_t j = 0; j < t.num_w; ++j) {
      if constexpr (Stored<W>::kZeroPoints)
        widen_groups<W>(t, j, begin, end, out + j * stride);
      else
        widen_row(at<W>(t.w, j * t.w_stride + begin), end - begin, out + j * stride);
    }
  }

  // All tiles of one widened block. The x rows of a tile stay in the first-level cache while all weight
  // rows pass by.
  static void wide_block(const MatmulTile& t, const Block& block) {
    int64_t row_tile = 0;
    for (int64_t row = 0; row < t.num_x; ++row_tile)
      row += with_rows(t.num_x - row, [&](auto rows) {
        wide_rows<decltype(rows)::kValue>(t, block, row, row_tile);
      });
  }

  // What is widened after the columns before `end`, `depth` at a time: more columns of these weight rows, or the first
  // of those that follow.
  template <class W>
  static NextBlock next_block(const MatmulTile& t, int64_t end, int64_t depth) {
    const int64_t first = end < t.in ? end : t.num_w * t.w_stride;
    const int64_t left = end < t.in ? t.in - end : t.in;
    constexpr int64_t kLine = 64 / int64_t{sizeof(W)} * Stored<W>::kValues;
    return {.w = reinterpret_cast<const char*>(at<W>(t.w, first)),
            .row_bytes = t.w_stride / Stored<W>::kValues * int64_t{sizeof(W)},
            .lines = ((left < depth ? left : depth) + kLine - 1) / kLine,
            .row_tiles = (t.num_x + V::kMaxRows - 1) / V::kMaxRows};
  }

  template <class W>
  static void wide(const MatmulTile& t) {
    float* const widened = static_cast<float*>(t.workspace);
    const int64_t one_block = is_scaled(t) ? kScaleBlock : kDepth;
    if (t.in <= one_block) {
      const int64_t stride = (t.in + V::kLanes - 1) / V::kLanes * V::kLanes + kRowGap;
      widen<W>(t, 0, t.in, stride, widened);
      return wide_block(t, {.w = widened,
                            .w_stride = stride,
                            .begin = 0,
                            .end = t.in,
                            .next = next_block<W>(t, t.in, t.in)});
    }
    constexpr int64_t kStride = kDepth + kRowGap;
    float* const acc = widened + kTileRows * kStride;
    for (int64_t i = 0; i < t.num_x * kTileRows; ++i) V::zero().store(acc + i * V::kLanes);
    for (int64_t begin = 0; begin < t.in; begin += kDepth) {
      const int64_t end = begin + kDepth < t.in ? begin + kDepth : t.in;
      widen<W>(t, begin, end, kStride, widened);
      wide_block(t, {.w = widened,
                     .w_stride = kStride,
                     .acc = acc,
                     .begin = begin,
                     .end = end,
                     .next = next_block<W>(t, end, kDepth)});
    }
    for (int64_t i = 0; i < t.num_x; ++i) put_row(t, i, acc + i * kTileRows * V::kLanes);
  }

  // put() of all weight rows for one row of x, from accumulators in memory.
  static void put_row(const MatmulTile& t, int64_t row, const float* acc) {
    int64_t j = 0;
    for (; j + 4 <= t.num_w; j += 4) {
      V four[4];
      for (int i = 0; i < 4; ++i) four[i] = V::load(acc + (j + i) * V::kLanes);
      put_sums<4>(t, row, j, four);
    }
    for (; j < t.num_w; ++j) put(t, row, j, V::load(acc + j * V::kLanes).reduce_add());
  }

  template <int kRows>
  struct Rows {
    static constexpr int kValue = kRows;
  };

  // Calls f with the row count of the next tile and returns it. `left` rows are cut into as few tiles as
  // the registers allow, of nearly the same size.
  template <class F>
  [[gnu::always_inline]] static int64_t with_rows(int64_t left, const F& f) {
    const int64_t tiles = (left + V::kMaxRows - 1) / V::kMaxRows;
    return with_exactly<V::kMaxRows>((left + tiles - 1) / tiles, f);
  }

  template <int kRows, class F>
  [[gnu::always_inline]] static int64_t with_exactly(int64_t rows, const F& f) {
    if constexpr (kRows > 1)
      if (rows < kRows) return with_exactly<kRows - 1>(rows, f);
    f(Rows<kRows>{});
    return kRows;
  }

  template <class W>
  static void run_kind(const MatmulTile& t) {
    if (t.num_x <= kDirectTokens) {
      direct<W>(t);
    } else {
      wide<W>(t);
    }
  }

  static constexpr int64_t kDirectTokens = 2 * V::kMaxRows;

  static void run(const MatmulTile& t) {
    switch (t.kind) {
      case WeightKind::kF32:
        return run_kind<float>(t);
      case WeightKind::kBf16:
        return run_kind<uint16_t>(t);
      case WeightKind::kF8:
        return run_kind<uint8_t>(t);
      case WeightKind::kI4:
        return run_kind<I4Pair>(t);
      case WeightKind::kU4:
        return run_kind<U4Pair>(t);
    }
  }
};

}  // namespace fathom::cpu
