#pragma once
// Products whose vectors have four weight rows side by side: so many elements of each, and the same elements of x four
// times. Four lanes are an output. Form (packed_forms.h, bf16_form.h): how weights and x lie, and the multiply-add.
//
// Floors: few rows of x, the bytes of the weights once; many, the multiply-adds. A tile of 6 rows of x by 16 weight
// rows has 24 sums, ten loads for 24 multiply-adds, and goes 64 steps deep before sums wait in the workspace, where one
// with a row to a vector would go 16.
//
// Order of sums: lane l of an output takes what the form gives it of each vector, vector after vector; the four lanes
// are added at the end. Scaled blocks of 128 channels follow each other. It is the same for one row and for many.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/kernel/matmul.h"
#include "cpu/isa/kernels.h"
#include "cpu/isa/vec_avx512.h"

namespace fathom::cpu {
namespace {

// Weight rows of a vector.
inline constexpr int64_t kFour = 4;

// Sixteen bytes of each of four rows in a vector, of 64.
template <class Load>
[[gnu::always_inline]] inline void four_chunks(const Load& load, __m512i (&out)[4]) {
  const __m512i r[] = {load(0), load(1), load(2), load(3)};
  const __m512i low[] = {_mm512_shuffle_i32x4(r[0], r[1], 0x44),
                         _mm512_shuffle_i32x4(r[2], r[3], 0x44)};
  const __m512i high[] = {_mm512_shuffle_i32x4(r[0], r[1], 0xEE),
                          _mm512_shuffle_i32x4(r[2], r[3], 0xEE)};
  out[0] = _mm512_shuffle_i32x4(low[0], low[1], 0x88);
  out[1] = _mm512_shuffle_i32x4(low[0], low[1], 0xDD);
  out[2] = _mm512_shuffle_i32x4(high[0], high[1], 0x88);
  out[3] = _mm512_shuffle_i32x4(high[0], high[1], 0xDD);
}
// The same of 32.
template <class Load>
[[gnu::always_inline]] inline void four_chunks(const Load& load, __m512i (&out)[2]) {
  const auto half = [&](int i) { return _mm512_castsi512_si256(load(i)); };
  const __m512i low = _mm512_inserti64x4(load(0), half(1), 1);
  const __m512i high = _mm512_inserti64x4(load(2), half(3), 1);
  out[0] = _mm512_shuffle_i32x4(low, high, 0x88);
  out[1] = _mm512_shuffle_i32x4(low, high, 0xDD);
}

// Form has: Stored, kKind, X (an element of x), kBits of a weight, kStep elements of which the bytes are kChunks chunks
// and kVectors vectors, kElements of a row in a vector, kScaled, kPadded (rows of x go on with zeros to a whole step),
// kWidenLate (a block keeps chunks, of which products take widen_piece(chunk, vector of it): where that is one
// operation beside the multiply-adds); x_offset(vector of a step); load(), widen(chunk), scales(), add().
template <class Form>
struct FourDot {
  using Plain = Matmul<Vec>;
  using X = typename Form::X;
  static constexpr int64_t kStep = Form::kStep;
  static constexpr int kPieces = Form::kVectors / Form::kChunks;
  static constexpr int64_t bytes(int64_t values) { return values * Form::kBits / 8; }

  // Four weight rows of a tile from `first` on; the last stands for what is behind it.
  struct FourRows {
    const uint8_t* row[kFour];

    static FourRows of(const MatmulTile& t, int64_t first) {
      FourRows four;
      for (int64_t i = 0; i < kFour; ++i) {
        const int64_t r = first + i < t.num_w ? first + i : t.num_w - 1;
        four.row[i] = static_cast<const uint8_t*>(t.w) + bytes(r * t.w_stride);
      }
      return four;
    }
    // A step from element k on.
    [[gnu::always_inline]] void step(int64_t k, __m512i (&out)[Form::kChunks]) const {
      four_chunks(
          [&](int i) __attribute__((always_inline)) { return Form::load(row[i] + bytes(k)); }, out);
    }
    // The same where only n elements are left: zeros behind them.
    void last_step(int64_t k, int64_t n, __m512i (&out)[Form::kChunks]) const {
      const __mmask64 there = (__mmask64{1} << bytes(n)) - 1;
      four_chunks([&](int i) { return _mm512_maskz_loadu_epi8(there, row[i] + bytes(k)); }, out);
    }
  };

  // The elements of x for vector i of the step at x. kLast: only n are left, zeros stand for the others.
  template <bool kLast>
  [[gnu::always_inline]] static __m512i load_x(const X* x, int i, int64_t n) {
    const int64_t offset = Form::x_offset(i);
    if constexpr (kLast && !Form::kPadded) {
      const int64_t left = (n - offset) * int64_t{sizeof(X)};
      const __mmask16 there = static_cast<__mmask16>(left >= 16  ? 0xFFFF
                                                     : left <= 0 ? 0
                                                                 : (1 << left) - 1);
      return _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(there, x + offset));
    } else {
      return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + offset)));
    }
  }

  // Weight rows where they lie.
  template <int kGroups>
  struct InPlace {
    FourRows four[kGroups];
    Form form;
    const uint8_t* next;  // the tile that is fetched meanwhile

    // As many lines of the next tile as a step reads of this one, in the order in which they lie: memory is faster in
    // order than in rows side by side.
    [[gnu::always_inline]] void fetch(int64_t k) const {
      constexpr int64_t kRowsOfTile = kGroups * kFour;
      constexpr int64_t kLines = kRowsOfTile * bytes(kStep) / 64;
      const uint8_t* const line = next + kRowsOfTile * bytes(k);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kLines; ++i) Vec::prefetch(line + i * 64);
    }
    // A step of all groups at element k, of which n are left.
    template <bool kLast, int kRows>
    [[gnu::always_inline]] void add_step(const X* const (&x)[kRows], int64_t k, int64_t n,
                                         Vec (&sum)[kRows][kGroups]) const {
      __m512i chunks[kGroups][Form::kChunks];
      if constexpr (!kLast) fetch(k);
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) {
        if constexpr (kLast) {
          four[j].last_step(k, n, chunks[j]);
        } else {
          four[j].step(k, chunks[j]);
        }
      }
#pragma GCC unroll 4
      for (int c = 0; c < Form::kChunks; ++c) {
        __m512i w[kGroups][kPieces];
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) form.widen(chunks[j][c], w[j]);
#pragma GCC unroll 4
        for (int p = 0; p < kPieces; ++p)
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) {
            const __m512i of_x = load_x<kLast>(x[i] + k, c * kPieces + p, n);
#pragma GCC unroll 8
            for (int j = 0; j < kGroups; ++j) sum[i][j] = Form::add(of_x, w[j][p], sum[i][j]);
          }
      }
    }
  };

  // The lines that the next block is made of, some with each step of this one. Many at once would hold up the loads
  // behind them, because a core waits for two or three dozen lines at most.
  class Fetch {
   public:
    // steps: of all tiles of the block.
    Fetch(const typename Plain::NextBlock& next, int64_t rows, int64_t steps)
        : at_(next.w),
          row_end_(next.w + next.lines * 64),
          gap_(next.row_bytes - next.lines * 64),
          row_bytes_(next.row_bytes),
          left_(next.lines * rows),
          each_((left_ + steps - 1) / steps) {}

    [[gnu::always_inline]] void step() {
      if (left_ <= 0) return;
      left_ -= each_;
      for (int64_t i = 0; i < each_; ++i) {
        __builtin_prefetch(at_, 0, 2);
        at_ += 64;
        if (at_ == row_end_) {
          at_ += gap_;
          row_end_ += row_bytes_;
        }
      }
    }

   private:
    const char *at_, *row_end_;
    int64_t gap_, row_bytes_, left_, each_;
  };

  // A block of weights, widened or in chunks as the form says: [groups, steps, kKept] vectors from element `begin` of k
  // on, zeros behind its end to a whole step.
  template <int kGroups>
  struct Widened {
    const char* w;
    int64_t begin;
    Fetch* fetch;

    // Vector v of a step.
    [[gnu::always_inline]] static __m512i kept(const char* step, int v) {
      if constexpr (Form::kWidenLate)
        return Form::widen_piece(_mm512_load_si512(step + v / kPieces * 64), v % kPieces);
      else
        return _mm512_load_si512(step + v * 64);
    }
    template <bool kLast, int kRows>
    [[gnu::always_inline]] void add_step(const X* const (&x)[kRows], int64_t k, int64_t n,
                                         Vec (&sum)[kRows][kGroups]) const {
      const char* const step = w + (k - begin) / kStep * kStepBytes;
      fetch->step();
#pragma GCC unroll 8
      for (int v = 0; v < Form::kVectors; ++v) {
        __m512i four[kGroups];
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) four[j] = kept(step + j * kGroupBytes, v);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const __m512i of_x = load_x<kLast>(x[i] + k, v, n);
#pragma GCC unroll 8
          for (int j = 0; j < kGroups; ++j) sum[i][j] = Form::add(of_x, four[j], sum[i][j]);
        }
      }
    }
  };

  // Elements [begin, end) of k.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  using Corner = typename Plain::Corner;

  // sum += products of the range.
  template <int kRows, int kGroups, class Weights>
  [[gnu::always_inline]] static void add_range(const MatmulTile& t, Corner corner, Range range,
                                               const Weights& weights, Vec (&sum)[kRows][kGroups]) {
    const X* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = reinterpret_cast<const X*>(t.x[corner.row + i]);
    int64_t k = range.begin;
    for (; k + kStep <= range.end; k += kStep)
      weights.template add_step<false>(x, k, range.end - k, sum);
    if (k < range.end) [[unlikely]]
      weights.template add_step<true>(x, k, range.end - k, sum);
  }

  template <int kRows, int kGroups>
  [[gnu::always_inline]] static void clear(Vec (&sum)[kRows][kGroups]) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) sum[i][j] = Vec::zero();
  }

  // add(i, j, sums of a block, its scale), block after block of the range.
  template <int kRows, int kGroups, class Weights, class Add>
  [[gnu::always_inline]] static void for_blocks(const MatmulTile& t, Corner corner, Range range,
                                                const Weights& weights, const Add& add) {
    for (int64_t from = range.begin; from < range.end; from += kScaleBlock) {
      Vec sum[kRows][kGroups];
      clear(sum);
      const int64_t stop = from + kScaleBlock < range.end ? from + kScaleBlock : range.end;
      add_range(t, corner, {from, stop}, weights, sum);
      const int64_t block = from / kScaleBlock;
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) {
        const int64_t column = corner.column + j * kFour;
        const Vec of_w = Form::scales(t, column, t.num_w - column, block);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i)
          add(i, j, sum[i][j], Vec::mul(Vec::set1(t.x_scale[corner.row + i][block]), of_w));
      }
    }
  }

  // The outputs of four weight rows.
  static void put_four(const MatmulTile& t, int64_t row, int64_t column, Vec sum) {
    const __m512 pairs = _mm512_add_ps(sum.v, _mm512_permute_ps(sum.v, 0x4E));
    const __m512 all = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xB1));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    float sums[kFour];
    _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, all)));
    for (int64_t i = 0; i < kFour && column + i < t.num_w; ++i)
      Plain::put(t, row, column + i, sums[i]);
  }

  // The outputs of sixteen weight rows, or of those that the tile has, whose sums are four vectors. The lanes of an
  // output are added in put_four's order.
  static void put_sixteen(const MatmulTile& t, int64_t row, int64_t column, const float* sums) {
    const auto four = [&](int i) { return _mm512_loadu_ps(sums + i * Vec::kLanes); };
    // Of two vectors, in each quarter: lanes 0 + 2 of both, then lanes 1 + 3.
    const auto pairs = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    };
    const __m512 low = pairs(four(0), four(1)), high = pairs(four(2), four(3));
    const __m512 by_quarter =
        _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xEE));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 all = _mm512_permutexvar_ps(order, by_quarter);
    float* const out = t.out[row] + t.out_begin + column;
    const int64_t left = t.num_w - column;
    const __mmask16 there = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
    if (t.accumulate) all = _mm512_add_ps(_mm512_maskz_loadu_ps(there, out), all);
    _mm512_mask_storeu_ps(out, there, all);
  }

  template <int kRows, int kGroups>
  static void direct_tile(const MatmulTile& t, int64_t row, int64_t column) {
    InPlace<kGroups> weights{};
    for (int j = 0; j < kGroups; ++j) weights.four[j] = FourRows::of(t, column + j * kFour);
    weights.next = weights.four[0].row[0] +
                   bytes(Plain::template prefetch_ahead<typename Form::Stored, kGroups * kFour>(t));
    if (t.next_w != nullptr && column + kGroups * kFour >= t.num_w)
      weights.next = static_cast<const uint8_t*>(t.next_w);
    Vec total[kRows][kGroups];
    clear(total);
    const Corner corner{.row = row, .column = column};
    if constexpr (Form::kScaled) {
      for_blocks<kRows, kGroups>(
          t, corner, {0, t.in},
          weights, [&](int i, int j, Vec sum, Vec scale) __attribute__((always_inline)) {
            total[i][j] = Vec::fma(sum, scale, total[i][j]);
          });
    } else {
      add_range(t, corner, {0, t.in}, weights, total);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) put_four(t, row + i, column + j * kFour, total[i][j]);
  }

  // As many rows of x at once as let sums stay in registers, so that weights are widened seldom.
  static void direct(const MatmulTile& t) {
    constexpr int kMost = 8;
    for (int64_t column = 0; column < t.num_w; column += 2 * kFour)
      for (int64_t row = 0; row < t.num_x;) {
        const int64_t left = t.num_x - row, tiles = (left + kMost - 1) / kMost;
        row += Plain::template with_exactly<kMost>((left + tiles - 1) / tiles, [&](auto rows) {
          constexpr int kRows = decltype(rows)::kValue;
          if (column + kFour < t.num_w) {
            direct_tile<kRows, 2>(t, row, column);
          } else {
            direct_tile<kRows, 1>(t, row, column);
          }
        });
      }
  }

  // A widened block of k. acc: [num_x, kTileRows / 4] vectors, the sums so far.
  struct Block {
    const char* w = nullptr;
    Range range;
    float* acc = nullptr;
    Fetch* fetch = nullptr;
  };
  // Vectors that a step of a block keeps, and the steps of a block. Chunks are half as many, and deep blocks take sums
  // to the workspace and back more seldom.
  static constexpr int kKept = Form::kWidenLate ? Form::kChunks : Form::kVectors;
  static constexpr int64_t kSteps = Form::kWidenLate ? 32 : 8;
  static constexpr int64_t kStepBytes = kKept * 64, kGroupBytes = kSteps * kStepBytes;
  static constexpr int64_t kWideDepth = kSteps * kStep;
  static constexpr int64_t kWideGroups = kTileRows / kFour;
  // Weight rows of a tile of as many rows of x as there are at least where weights are widened.
  static constexpr int64_t kColumnsOfTile = Vec::columns(Vec::kMaxRows) * kFour;

  template <int kRows, int kGroups>
  static void wide_tile(const MatmulTile& t, const Block& b, int64_t row, int64_t column) {
    const Widened<kGroups> weights{
        .w = b.w + column / kFour * kGroupBytes, .begin = b.range.begin, .fetch = b.fetch};
    float* const acc = b.acc + (row * kWideGroups + column / kFour) * Vec::kLanes;
    const auto at = [&](int i, int j) { return acc + (i * kWideGroups + j) * Vec::kLanes; };
    const Corner corner{.row = row, .column = column};
    if constexpr (Form::kScaled) {
      for_blocks<kRows, kGroups>(
          t, corner, b.range,
          weights, [&](int i, int j, Vec sum, Vec scale) __attribute__((always_inline)) {
            Vec::fma(sum, scale, Vec::load(at(i, j))).store(at(i, j));
          });
    } else {
      Vec sum[kRows][kGroups];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) sum[i][j] = Vec::load(at(i, j));
      add_range(t, corner, b.range, weights, sum);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) sum[i][j].store(at(i, j));
    }
  }

  template <int kRows>
  static void wide_rows(const MatmulTile& t, const Block& b, int64_t row) {
    constexpr int kGroups = Vec::columns(kRows);
    int64_t column = 0;
    for (; column + (kGroups - 1) * kFour < t.num_w; column += kGroups * kFour)
      wide_tile<kRows, kGroups>(t, b, row, column);
    for (; column < t.num_w; column += kFour) wide_tile<kRows, 1>(t, b, row, column);
  }

  static void widen(const MatmulTile& t, Range range, char* out) {
    const Form form;
    for (int64_t column = 0; column < t.num_w; column += kFour, out += kGroupBytes) {
      const FourRows four = FourRows::of(t, column);
      char* to = out;
      for (int64_t k = range.begin; k < range.end; k += kStep) {
        __m512i chunks[Form::kChunks];
        range.end - k >= kStep ? four.step(k, chunks) : four.last_step(k, range.end - k, chunks);
        for (int c = 0; c < Form::kChunks; ++c) {
          __m512i w[kPieces] = {chunks[c]};
          if constexpr (!Form::kWidenLate) form.widen(chunks[c], w);
          for (int p = 0; p < kKept / Form::kChunks; ++p, to += 64) _mm512_store_si512(to, w[p]);
        }
      }
    }
  }

  static void wide(const MatmulTile& t) {
    char* const widened = static_cast<char*>(t.workspace);
    float* const acc = reinterpret_cast<float*>(widened + kWideGroups * kGroupBytes);
    for (int64_t i = 0; i < t.num_x * kWideGroups; ++i) Vec::zero().store(acc + i * Vec::kLanes);
    for (int64_t begin = 0; begin < t.in; begin += kWideDepth) {
      const Range range{begin, begin + kWideDepth < t.in ? begin + kWideDepth : t.in};
      widen(t, range, widened);
      auto next = Plain::template next_block<typename Form::Stored>(t, range.end, kWideDepth);
      if (t.next_w != nullptr && range.end == t.in) next.w = static_cast<const char*>(t.next_w);
      const int64_t column_tiles = (t.num_w + kColumnsOfTile - 1) / kColumnsOfTile;
      const int64_t steps = (range.end - begin + kStep - 1) / kStep;
      Fetch fetch(next, t.num_w, next.row_tiles * column_tiles * steps);
      const Block block{.w = widened, .range = range, .acc = acc, .fetch = &fetch};
      for (int64_t row = 0; row < t.num_x;)
        row += Plain::with_rows(
            t.num_x - row, [&](auto rows) { wide_rows<decltype(rows)::kValue>(t, block, row); });
    }
    for (int64_t i = 0; i < t.num_x; ++i)
      for (int64_t column = 0; column < t.num_w; column += 4 * kFour)
        put_sixteen(t, i, column, acc + (i * kWideGroups + column / kFour) * Vec::kLanes);
  }

  static void run(const MatmulTile& t) {
    if (t.num_x <= Plain::kDirectTokens) {
      direct(t);
    } else {
      wide(t);
    }
  }
};

}  // namespace
}  // namespace fathom::cpu
