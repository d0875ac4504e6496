#pragma once
// Products of e4m3 weights, or i4 ones (i4_widen.h), by dot products of bf16 pairs (VDPBF16PS, VPERMI2B: AVX-512 BF16
// and VBMI). Every e4m3 value is a bf16 value, NaN too, and the product of two is exact in float32. Included by
// avx512_bf16.cc and amx.cc only.
//
// Floor of one row of x: 64 weights are one load, five byte operations and two dot products, some seven cycles of a
// core whose vectors of 512 bits take two turns; float32 products take 26 for them.
//
// Order of sums: per block of 128 channels, in steps of 64 elements, of which lane l adds four; the scaled blocks
// follow each other, and the lanes are added at the end. It is the same for one row and for many.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/kernel/matmul.h"
#include "cpu/isa/kernel/rows.h"
#include "cpu/isa/kernels.h"
#include "cpu/isa/vec_avx512.h"

namespace fathom::cpu {
namespace {

// The two bytes of the bf16 value of each e4m3 code without its sign.
struct F8Bytes {
  alignas(64) uint8_t low[128] = {};
  alignas(64) uint8_t high[128] = {};
};

constexpr unsigned bf16_of_f8(unsigned code) {
  const unsigned exponent = code >> 3, mantissa = code & 7;
  if (code == 0x7F) return 0x7FC0;
  if (exponent > 0) return (exponent + 120) << 7 | mantissa << 4;
  if (mantissa == 0) return 0;
  const unsigned top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
  return (top + 118) << 7 | (mantissa << (7 - top) & 0x7F);
}

constexpr F8Bytes make_f8_bytes() {
  F8Bytes bytes;
  for (unsigned code = 0; code < 128; ++code) {
    bytes.low[code] = static_cast<uint8_t>(bf16_of_f8(code) & 0xFF);
    bytes.high[code] = static_cast<uint8_t>(bf16_of_f8(code) >> 8);
  }
  return bytes;
}

constexpr F8Bytes kF8Bytes = make_f8_bytes();

// Sixty-four values as bf16 in the order in which interleaving bytes leaves them: the first vector has elements
// 16 q to 16 q + 7, q = 0 to 3, the second has the others. Packed rows lie in it.
struct PackedStep {
  __m512i v[2];

  static PackedStep load(const uint16_t* p) {
    return {{_mm512_loadu_si512(p), _mm512_loadu_si512(p + 32)}};
  }
  void store(uint16_t* p) const {
    _mm512_storeu_si512(p, v[0]);
    _mm512_storeu_si512(p + 32, v[1]);
  }
  static PackedStep of_floats(const float* p) {
    const __m512i low = halves(p), high = halves(p + 32);
    return {{_mm512_shuffle_i32x4(low, high, _MM_SHUFFLE(2, 0, 2, 0)),
             _mm512_shuffle_i32x4(low, high, _MM_SHUFFLE(3, 1, 3, 1))}};
  }
  Vec add_products(const PackedStep& other, Vec sum) const {
    sum.v = _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(v[0]),
                             reinterpret_cast<__m512bh>(other.v[0]));
    sum.v = _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(v[1]),
                             reinterpret_cast<__m512bh>(other.v[1]));
    return sum;
  }

 private:
  static __m512i halves(const float* p) {
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p)));
  }
};

// Holds the tables in registers.
class F8Widener {
 public:
  F8Widener()
      : low_{_mm512_load_si512(kF8Bytes.low), _mm512_load_si512(kF8Bytes.low + 64)},
        high_{_mm512_load_si512(kF8Bytes.high), _mm512_load_si512(kF8Bytes.high + 64)},
        sign_(_mm512_set1_epi8(int8_t(0x80))) {}

  PackedStep load(const uint8_t* p) const { return widen(_mm512_loadu_si512(p)); }
  // The first n; the others are 0.
  PackedStep load_partial(const uint8_t* p, int64_t n) const {
    return widen(_mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, p));
  }

 private:
  PackedStep widen(__m512i codes) const {
    constexpr int kFirstOrBothOthers = 0xF8;
    const __m512i low = _mm512_permutex2var_epi8(low_[0], codes, low_[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(high_[0], codes, high_[1]);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, sign_, kFirstOrBothOthers);
    return {{_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)}};
  }

  __m512i low_[2], high_[2], sign_;
};

struct F8Form {
  using Stored = uint8_t;
  using Widener = F8Widener;
  static constexpr WeightKind kKind = WeightKind::kF8;
  static constexpr int64_t bytes(int64_t values) { return values; }
  static Widener widener() { return F8Widener(); }
  static float scale(const MatmulTile& t, int64_t /*column*/, int64_t block) {
    return t.w_scale[block];
  }
};

// Form: how the weights lie.
template <class Form>
struct PackedDot {
  using Plain = Matmul<Vec>;
  static constexpr int64_t kStep = 64;

  // Weight rows where they lie.
  template <int kColumns>
  struct InPlace {
    const uint8_t* w[kColumns];
    int64_t ahead;  // elements that are fetched ahead of their use
    typename Form::Widener widener;

    [[gnu::always_inline]] PackedStep at(int j, int64_t k, int64_t end) const {
      const uint8_t* const from = w[j] + Form::bytes(k);
      Vec::prefetch(from + Form::bytes(ahead));
      return end - k >= kStep ? widener.load(from) : widener.load_partial(from, end - k);
    }
  };

  // Rows of a widened block that begins at element `begin`, padded with zeros to whole steps.
  template <int kColumns>
  struct Widened {
    const uint16_t* w[kColumns];
    int64_t begin;

    [[gnu::always_inline]] PackedStep at(int j, int64_t k, int64_t /*end*/) const {
      return PackedStep::load(w[j] + (k - begin));
    }
  };

  // Elements [begin, end) of k.
  struct Range {
    int64_t begin = 0, end = 0;
  };
  using Corner = typename Plain::Corner;

  // total += (sum over one block of k) * scale of x * scale of w, block after block of the range.
  template <int kRows, int kColumns, class Weights>
  [[gnu::always_inline]] static void add_blocks(const MatmulTile& t, Corner corner, Range range,
                                                const Weights& weights,
                                                Vec (&total)[kRows][kColumns]) {
    const auto [begin, end] = range;
    const uint16_t* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = reinterpret_cast<const uint16_t*>(t.x[corner.row + i]);
    for (int64_t from = begin; from < end; from += kScaleBlock) {
      const int64_t stop = from + kScaleBlock < end ? from + kScaleBlock : end;
      Vec block[kRows][kColumns];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) block[i][j] = Vec::zero();
      for (int64_t k = from; k < stop; k += kStep) {
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
          const PackedStep w = weights.at(j, k, end);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i)
            block[i][j] = w.add_products(PackedStep::load(x[i] + k), block[i][j]);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const int64_t s = from / kScaleBlock;
        const float x_scale = t.x_scale[corner.row + i][s];
#pragma GCC unroll 8
        for (int j = 0; j < kColumns; ++j) {
          const Vec scale = Vec::set1(x_scale * Form::scale(t, corner.column + j, s));
          total[i][j] = Vec::fma(block[i][j], scale, total[i][j]);
        }
      }
    }
  }

  template <int kRows, int kColumns>
  static void direct_tile(const MatmulTile& t, int64_t row, int64_t column) {
    InPlace<kColumns> weights{
        .w = {},
        .ahead = Plain::template prefetch_ahead<typename Form::Stored, kColumns>(t),
        .widener = Form::widener()};
    for (int j = 0; j < kColumns; ++j)
      weights.w[j] = static_cast<const uint8_t*>(t.w) + Form::bytes((column + j) * t.w_stride);
    Vec total[kRows][kColumns];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) total[i][j] = Vec::zero();
    add_blocks(t, {.row = row, .column = column}, {0, t.in}, weights, total);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
      Plain::template put_sums<kColumns>(t, row + i, column, total[i]);
  }

  template <int kRows>
  static void direct_rows(const MatmulTile& t, int64_t row, int64_t begin, int64_t end) {
    constexpr int kColumns = Vec::columns(kRows);
    int64_t column = begin;
    for (; column + kColumns <= end; column += kColumns)
      direct_tile<kRows, kColumns>(t, row, column);
    for (; column < end; ++column) direct_tile<kRows, 1>(t, row, column);
  }

  static void direct(const MatmulTile& t) {
    for (int64_t begin = 0; begin < t.num_w; begin += Plain::kColumnGroup) {
      const int64_t end =
          begin + Plain::kColumnGroup < t.num_w ? begin + Plain::kColumnGroup : t.num_w;
      for (int64_t row = 0; row < t.num_x;)
        row += Plain::with_rows(t.num_x - row, [&](auto rows) {
          direct_rows<decltype(rows)::kValue>(t, row, begin, end);
        });
    }
  }

  // A widened block of k. acc: [num_x, kTileRows, kLanes], the sums so far.
  struct Block {
    const uint16_t* w = nullptr;
    Range range;
    float* acc = nullptr;
  };
  // Values of half a float, so twice as many have the bytes of kDepth.
  static constexpr int64_t kWideDepth = 2 * kDepth, kWideStride = kWideDepth + 2 * kRowGap;

  template <int kRows, int kColumns>
  static void wide_tile(const MatmulTile& t, const Block& b, int64_t row, int64_t column) {
    Widened<kColumns> weights{.w = {}, .begin = b.range.begin};
    for (int j = 0; j < kColumns; ++j) weights.w[j] = b.w + (column + j) * kWideStride;
    float* const acc = b.acc + (row * kTileRows + column) * Vec::kLanes;
    const auto at = [acc](int i, int j) { return acc + (i * kTileRows + j) * Vec::kLanes; };
    Vec total[kRows][kColumns];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) total[i][j] = Vec::load(at(i, j));
    add_blocks(t, {.row = row, .column = column}, b.range, weights, total);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) total[i][j].store(at(i, j));
  }

  template <int kRows>
  static void wide_rows(const MatmulTile& t, const Block& b, int64_t row) {
    constexpr int kColumns = Vec::columns(kRows);
    int64_t column = 0;
    for (; column + kColumns <= t.num_w; column += kColumns)
      wide_tile<kRows, kColumns>(t, b, row, column);
    for (; column < t.num_w; ++column) wide_tile<kRows, 1>(t, b, row, column);
  }

  static void widen(const MatmulTile& t, int64_t begin, int64_t end, uint16_t* out) {
    const typename Form::Widener widener = Form::widener();
    for (int64_t j = 0; j < t.num_w; ++j) {
      const uint8_t* w = static_cast<const uint8_t*>(t.w) + Form::bytes(j * t.w_stride + begin);
      pack_row(widener, w, end - begin, out + j * kWideStride);
    }
  }

  static void wide(const MatmulTile& t) {
    uint16_t* const widened = static_cast<uint16_t*>(t.workspace);
    float* const acc = reinterpret_cast<float*>(widened + kTileRows * kWideStride);
    for (int64_t i = 0; i < t.num_x * kTileRows; ++i) Vec::zero().store(acc + i * Vec::kLanes);
    for (int64_t begin = 0; begin < t.in; begin += kWideDepth) {
      const int64_t end = begin + kWideDepth < t.in ? begin + kWideDepth : t.in;
      widen(t, begin, end, widened);
      const Block block{.w = widened, .range = {begin, end}, .acc = acc};
      for (int64_t row = 0; row < t.num_x;)
        row += Plain::with_rows(
            t.num_x - row, [&](auto rows) { wide_rows<decltype(rows)::kValue>(t, block, row); });
    }
    for (int64_t i = 0; i < t.num_x; ++i) Plain::put_row(t, i, acc + i * kTileRows * Vec::kLanes);
  }

  static void run(const MatmulTile& t) {
    if (t.kind != Form::kKind) return avx512_kernels().matmul(t);
    if (t.num_x <= Plain::kDirectTokens) {
      direct(t);
    } else {
      wide(t);
    }
  }

  // Packed bf16 of n values, zeros behind them to the end of the step.
  static void pack_row(const typename Form::Widener& widener, const uint8_t* x, int64_t n,
                       uint16_t* out) {
    for (int64_t k = 0; k < n; k += kStep)
      (n - k >= kStep ? widener.load(x + Form::bytes(k))
                      : widener.load_partial(x + Form::bytes(k), n - k))
          .store(out + k);
  }
};

using F8Dot = PackedDot<F8Form>;

// Rows of x that are e4m3 values.
struct F8Rows {
  static void grid_row(const uint8_t* x, int64_t dim, float* q) {
    F8Dot::pack_row(F8Widener(), x, dim, reinterpret_cast<uint16_t*>(q));
  }

  // A packed row is half as long as the floats, so it may lie where they do: what is written was read before.
  static void quantize_row(const float* x, int64_t dim, float* q, float* scale) {
    uint16_t* const out = reinterpret_cast<uint16_t*>(q);
    for (int64_t begin = 0, b = 0; begin < dim; begin += kScaleBlock, ++b) {
      const int64_t size = begin + kScaleBlock < dim ? kScaleBlock : dim - begin;
      alignas(64) float grid[kScaleBlock] = {};
      Rows<Vec>::quantize(x + begin, size, grid, scale + b);
      for (int64_t k = 0; k < size; k += F8Dot::kStep)
        PackedStep::of_floats(grid + k).store(out + begin + k);
    }
  }
};

}  // namespace
}  // namespace fathom::cpu
