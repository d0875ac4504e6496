#pragma once
// Products of e4m3 or i4 weights with rows of x that are e4m3 values, by dot products of bf16 pairs (VDPBF16PS:
// AVX-512 BF16). All of them are bf16 values, and the product of two is exact in float32. Included by avx512_bf16.cc
// only.
//
// A vector has four weight rows side by side, eight elements of each, and eight elements of x four times; so four lanes
// are an output, and the scales of a block are one operation for four outputs.
//
// Floors: few rows of x, the bytes of the weights once; many, the dot products, of which there are 32 multiply-adds in
// a vector. Around 16 dot products of a block of 128 channels a tile does one operation for its scales.
//
// Order of sums: per block of 128 channels, in steps of eight elements, of which lane l adds two; the scaled blocks
// follow each other, and the four lanes are added at the end. It is the same for one row and for many.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/f8_widen.h"
#include "cpu/isa/i4_widen.h"
#include "cpu/isa/kernel/matmul.h"
#include "cpu/isa/kernels.h"
#include "cpu/isa/vec_avx512.h"

namespace fathom::cpu {
namespace {

// Weight rows of a vector.
inline constexpr int64_t kFour = 4;
// Vectors that a step of four rows becomes.
inline constexpr int kStepVectors = 8;

struct F8Form {
  using Stored = uint8_t;
  static constexpr WeightKind kKind = WeightKind::kF8;
  static constexpr int64_t kValues = 1;  // in a byte
  F8Widener widener;

  // Bytes of a step.
  [[gnu::always_inline]] static __m512i load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  // Sixteen bytes of each of four rows.
  [[gnu::always_inline]] void widen(__m512i bytes, __m512i (&out)[2]) const {
    const PackedStep step = widener.widen(bytes);
    out[0] = step.v[0];
    out[1] = step.v[1];
  }
  // A step of four rows: sixteen bytes of each in a vector.
  template <class Load>
  [[gnu::always_inline]] static void chunks(const Load& load, __m512i (&out)[4]) {
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
  // Of rows [row, row + 4), four lanes each; there are `count`.
  static Vec scales(const MatmulTile& t, int64_t /*row*/, int64_t /*count*/, int64_t block) {
    return Vec::set1(t.w_scale[block]);
  }
};

struct I4Form {
  using Stored = I4Pair;
  static constexpr WeightKind kKind = WeightKind::kI4;
  static constexpr int64_t kValues = 2;
  PairWidener widener{kI4Bytes};

  [[gnu::always_inline]] static __m512i load(const uint8_t* p) {
    return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  [[gnu::always_inline]] void widen(__m512i bytes, __m512i (&out)[4]) const {
    const __m512i mask = _mm512_set1_epi8(0x0F);
    const PackedStep even = widener.of_codes(_mm512_and_si512(bytes, mask));
    const PackedStep odd = widener.of_codes(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask));
    out[0] = even.v[0];
    out[1] = odd.v[0];
    out[2] = even.v[1];
    out[3] = odd.v[1];
  }
  template <class Load>
  [[gnu::always_inline]] static void chunks(const Load& load, __m512i (&out)[2]) {
    const auto half = [&](int i) { return _mm512_castsi512_si256(load(i)); };
    const __m512i low = _mm512_inserti64x4(load(0), half(1), 1);
    const __m512i high = _mm512_inserti64x4(load(2), half(3), 1);
    out[0] = _mm512_shuffle_i32x4(low, high, 0x88);
    out[1] = _mm512_shuffle_i32x4(low, high, 0xDD);
  }
  static Vec scales(const MatmulTile& t, int64_t row, int64_t count, int64_t block) {
    float of_rows[kFour];
    for (int64_t i = 0; i < kFour; ++i)
      of_rows[i] = t.w_scale[(row + (i < count ? i : count - 1)) * t.w_scale_stride + block];
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return {_mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_loadu_ps(of_rows)))};
  }
};

template <class Form>
struct PackedDot {
  using Plain = Matmul<Vec>;
  static constexpr int64_t kChunk = 16 * Form::kValues;  // elements of sixteen bytes
  static constexpr int kPieces = kChunk / 8;             // vectors that they become
  static constexpr int kChunks = kPackedStep / kChunk;

  // Where a packed row has the eight elements for vector i of a step.
  static constexpr int64_t x_offset(int i) {
    return i % kPieces * (kPackedStep / kPieces) + i / kPieces * 8;
  }
  [[gnu::always_inline]] static __m512i eight_of_x(const uint16_t* x) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  [[gnu::always_inline]] static Vec add_products(__m512i x, __m512i w, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w))};
  }

  // Four weight rows of a tile from `first` on; the last stands for what is behind it.
  struct FourRows {
    const uint8_t* row[kFour];

    static FourRows of(const MatmulTile& t, int64_t first) {
      FourRows four;
      for (int64_t i = 0; i < kFour; ++i) {
        const int64_t r = first + i < t.num_w ? first + i : t.num_w - 1;
        four.row[i] = static_cast<const uint8_t*>(t.w) + r * t.w_stride / Form::kValues;
      }
      return four;
    }
    // A step from element k on.
    [[gnu::always_inline]] void step(int64_t k, __m512i (&out)[kChunks]) const {
      Form::chunks(
          [&](int i)
              __attribute__((always_inline)) { return Form::load(row[i] + k / Form::kValues); },
          out);
    }
    // The same where only n elements are left: zeros behind them.
    void last_step(int64_t k, int64_t n, __m512i (&out)[kChunks]) const {
      const __mmask64 there = (__mmask64{1} << n / Form::kValues) - 1;
      Form::chunks(
          [&](int i) { return _mm512_maskz_loadu_epi8(there, row[i] + k / Form::kValues); }, out);
    }
    [[gnu::always_inline]] void prefetch(int64_t k) const {
#pragma GCC unroll 4
      for (int i = 0; i < kFour; ++i) Vec::prefetch(row[i] + k / Form::kValues);
    }
  };

  // Weight rows where they lie.
  template <int kGroups>
  struct InPlace {
    FourRows four[kGroups];
    Form form;
    int64_t ahead;  // elements that are fetched ahead of their use

    // A step of all groups at element k.
    template <int kRows>
    [[gnu::always_inline]] void add_step(const uint16_t* const (&x)[kRows], int64_t k, int64_t end,
                                         Vec (&sum)[kRows][kGroups]) const {
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) four[j].prefetch(k + ahead);
      __m512i bytes[kGroups][kChunks];
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j)
        end - k >= kPackedStep ? four[j].step(k, bytes[j])
                               : four[j].last_step(k, end - k, bytes[j]);
#pragma GCC unroll 4
      for (int c = 0; c < kChunks; ++c) {
        __m512i w[kGroups][kPieces];
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) form.widen(bytes[j][c], w[j]);
#pragma GCC unroll 4
        for (int p = 0; p < kPieces; ++p)
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) {
            const __m512i eight = eight_of_x(x[i] + k + x_offset(c * kPieces + p));
#pragma GCC unroll 8
            for (int j = 0; j < kGroups; ++j) sum[i][j] = add_products(eight, w[j][p], sum[i][j]);
          }
      }
    }
  };

  // A block of weights that were widened: [groups, steps, kStepVectors] vectors from element `begin` of k on, zeros
  // behind its end to a whole step.
  template <int kGroups>
  struct Widened {
    const uint16_t* w;
    int64_t begin;

    template <int kRows>
    [[gnu::always_inline]] void add_step(const uint16_t* const (&x)[kRows], int64_t k,
                                         int64_t /*end*/, Vec (&sum)[kRows][kGroups]) const {
#pragma GCC unroll 8
      for (int v = 0; v < kStepVectors; ++v) {
        __m512i four[kGroups];
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j)
          four[j] = _mm512_load_si512(w + (j * kWideDepth + k - begin) * kFour + v * 32);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const __m512i eight = eight_of_x(x[i] + k + x_offset(v));
#pragma GCC unroll 8
          for (int j = 0; j < kGroups; ++j) sum[i][j] = add_products(eight, four[j], sum[i][j]);
        }
      }
    }
  };

  // Elements [begin, end) of k.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  using Corner = typename Plain::Corner;

  // add(i, j, sums of a block, its scale), block after block of the range.
  template <int kRows, int kGroups, class Weights, class Add>
  [[gnu::always_inline]] static void for_blocks(const MatmulTile& t, Corner corner, Range range,
                                                const Weights& weights, const Add& add) {
    const auto [begin, end] = range;
    const uint16_t* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = reinterpret_cast<const uint16_t*>(t.x[corner.row + i]);
    for (int64_t from = begin; from < end; from += kScaleBlock) {
      const int64_t stop = from + kScaleBlock < end ? from + kScaleBlock : end;
      Vec sum[kRows][kGroups];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kGroups; ++j) sum[i][j] = Vec::zero();
      for (int64_t k = from; k < stop; k += kPackedStep) weights.add_step(x, k, stop, sum);
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

  template <int kRows, int kGroups>
  static void direct_tile(const MatmulTile& t, int64_t row, int64_t column) {
    InPlace<kGroups> weights{
        .four = {},
        .form = {},
        .ahead = Plain::template prefetch_ahead<typename Form::Stored, kGroups * kFour>(t)};
    for (int j = 0; j < kGroups; ++j) weights.four[j] = FourRows::of(t, column + j * kFour);
    Vec total[kRows][kGroups];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) total[i][j] = Vec::zero();
    for_blocks<kRows, kGroups>(
        t, {.row = row, .column = column}, {0, t.in},
        weights, [&](int i, int j, Vec sum, Vec scale) __attribute__((always_inline)) {
          total[i][j] = Vec::fma(sum, scale, total[i][j]);
        });
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
    const uint16_t* w = nullptr;
    Range range;
    float* acc = nullptr;
    typename Plain::NextBlock next;
  };
  static constexpr int64_t kWideDepth = 512;
  static constexpr int64_t kWideGroups = kTileRows / kFour;

  template <int kRows, int kGroups>
  static void wide_tile(const MatmulTile& t, const Block& b, int64_t row, int64_t column) {
    const Widened<kGroups> weights{.w = b.w + column * kWideDepth, .begin = b.range.begin};
    float* const acc = b.acc + (row * kWideGroups + column / kFour) * Vec::kLanes;
    for_blocks<kRows, kGroups>(
        t, {.row = row, .column = column}, b.range,
        weights, [&](int i, int j, Vec sum, Vec scale) __attribute__((always_inline)) {
          float* const at = acc + (i * kWideGroups + j) * Vec::kLanes;
          Vec::fma(sum, scale, Vec::load(at)).store(at);
        });
  }

  template <int kRows>
  static void wide_rows(const MatmulTile& t, const Block& b, int64_t row, int64_t row_tile) {
    constexpr int kGroups = Vec::columns(kRows);
    int64_t column = 0;
    for (; column + (kGroups - 1) * kFour < t.num_w; column += kGroups * kFour) {
      b.next.template fetch<kGroups * kFour>(column, row_tile);
      wide_tile<kRows, kGroups>(t, b, row, column);
    }
    for (; column < t.num_w; column += kFour) wide_tile<kRows, 1>(t, b, row, column);
  }

  static void widen(const MatmulTile& t, Range range, uint16_t* out) {
    const Form form;
    for (int64_t column = 0; column < t.num_w; column += kFour, out += kFour * kWideDepth) {
      const FourRows four = FourRows::of(t, column);
      uint16_t* to = out;
      for (int64_t k = range.begin; k < range.end; k += kPackedStep) {
        __m512i bytes[kChunks];
        range.end - k >= kPackedStep ? four.step(k, bytes)
                                     : four.last_step(k, range.end - k, bytes);
        for (int c = 0; c < kChunks; ++c) {
          __m512i w[kPieces];
          form.widen(bytes[c], w);
          for (int p = 0; p < kPieces; ++p, to += 32) _mm512_store_si512(to, w[p]);
        }
      }
    }
  }

  static void wide(const MatmulTile& t) {
    uint16_t* const widened = static_cast<uint16_t*>(t.workspace);
    float* const acc = reinterpret_cast<float*>(widened + kTileRows * kWideDepth);
    for (int64_t i = 0; i < t.num_x * kWideGroups; ++i) Vec::zero().store(acc + i * Vec::kLanes);
    for (int64_t begin = 0; begin < t.in; begin += kWideDepth) {
      const Range range{begin, begin + kWideDepth < t.in ? begin + kWideDepth : t.in};
      widen(t, range, widened);
      const Block block{
          .w = widened,
          .range = range,
          .acc = acc,
          .next = Plain::template next_block<typename Form::Stored>(t, range.end, kWideDepth)};
      int64_t row_tile = 0;
      for (int64_t row = 0; row < t.num_x; ++row_tile)
        row += Plain::with_rows(t.num_x - row, [&](auto rows) {
          wide_rows<decltype(rows)::kValue>(t, block, row, row_tile);
        });
    }
    for (int64_t i = 0; i < t.num_x; ++i)
      for (int64_t column = 0; column < t.num_w; column += kFour)
        put_four(t, i, column, Vec::load(acc + (i * kWideGroups + column / kFour) * Vec::kLanes));
  }

  static void run(const MatmulTile& t) {
    if (t.kind != Form::kKind) return avx512_kernels().matmul(t);
    if (t.num_x <= Plain::kDirectTokens) {
      direct(t);
    } else {
      wide(t);
    }
  }
};

using F8Dot = PackedDot<F8Form>;
using I4Dot = PackedDot<I4Form>;

}  // namespace
}  // namespace fathom::cpu
