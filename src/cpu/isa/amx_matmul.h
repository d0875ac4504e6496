#pragma once
// Matrix products by tile registers (amx_tile.h). Included by amx.cc only.
//
// bf16 weights: float32 rows of x are the sums of three bf16 rows, so a product is three passes with the exact bits of
// x, and still five times as fast as float32 vectors. e4m3 weights and their quantised rows of x are bf16 values
// already: one pass, after 64 weights were widened by five byte operations (f8_dot.h).
//
// A call reads weights where they lie, for all its rows of x. Those are laid out for the tiles once a call, so it
// should have hundreds of weight rows where x has many (KernelTable::wide_rows).
//
// Order of sums: the processor's within 32 elements (pairs of k, in rising order), of which first the upper, then the
// middle, then the lower parts of x are added; e4m3 begins anew each 128 channels and adds the scaled sum of each. A
// column of a tile knows nothing of its neighbours, so it is the same for one row and for many.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/amx_tile.h"
#include "cpu/isa/f8_dot.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

class AmxMatmul {
 public:
  static constexpr int64_t kMaxRows = 1024;

  static void run(const MatmulTile& t) {
    if (t.kind == WeightKind::kF32) return run_floats(t);
    AmxMatmul(t).multiply();
    _tile_release();
  }

  // By vectors, whose tiles have fewer weight rows.
  static void run_floats(MatmulTile t) {
    const KernelTable& vectors = avx512_kernels();
    const int64_t most = t.num_x <= vectors.direct_tokens ? vectors.direct_rows : vectors.wide_rows;
    const int64_t end = t.num_w;
    for (int64_t row = 0; row < end; row += most) {
      t.num_w = end - row < most ? end - row : most;
      vectors.matmul(t);
      t.w = static_cast<const float*>(t.w) + t.num_w * t.w_stride;
      t.out_begin += t.num_w;
    }
  }

 private:
  static constexpr int64_t kPanelBytes = int64_t{288} << 10;
  static constexpr int64_t kBlockTiles = kScaleBlock / kTileDepth;
  static constexpr int64_t kWideTiles = 2 * kBlockTiles;  // of 16 e4m3 rows at once
  static constexpr int64_t kPieceTiles = 8;               // of a stay in the first-level cache
  static constexpr int64_t kStagedTiles = 4 * kPieceTiles;
  static constexpr int64_t kSumBytes = kMaxRows * kTileTokens * 4;
  static constexpr int64_t kMaxDepth = 9216;
  static constexpr int64_t kScaleBytes = kMaxDepth / kScaleBlock * 64;
  static_assert(kPanelBytes + (kStagedTiles + 4) * kTileBytes + kSumBytes + kScaleBytes <=
                kWorkspaceBytes);

  explicit AmxMatmul(const MatmulTile& t)
      : t_(t),
        is_f8_(t.kind == WeightKind::kF8),
        parts_(is_f8_ ? 1 : 3),
        column_tiles_((t.num_x + kTileDim - 1) / kTileDim),
        columns_(columns_of(t.num_x)),
        panel_(static_cast<char*>(t.workspace)),
        staged_(panel_ + kPanelBytes),
        fresh_(reinterpret_cast<float*>(staged_ + kStagedTiles * kTileBytes)),
        sums_(fresh_ + 4 * kTileBytes / 4),
        x_scales_(sums_ + kSumBytes / 4) {}

  // Columns of a tile for so many rows of x.
  static int64_t columns_of(int64_t rows) {
    int64_t columns = 1;
    while (columns < rows && columns < kTileDim) columns *= 2;
    return columns;
  }

  int64_t x_tile_bytes() const { return 64 * columns_; }
  // Elements of k whose panel there is room for.
  int64_t panel_depth() const {
    const int64_t depth = kPanelBytes / (column_tiles_ * parts_ * x_tile_bytes()) * kTileDepth;
    return depth < kMaxDepth ? depth / kScaleBlock * kScaleBlock : kMaxDepth;
  }

  void multiply() {
    configure_tiles(columns_);
    const int64_t depth = panel_depth();
    for (begin_ = 0; begin_ < t_.in; begin_ += depth) {
      end_ = begin_ + depth < t_.in ? begin_ + depth : t_.in;
      // A PackedStep of e4m3 values is two tiles, however few are in it.
      const int64_t step = is_f8_ ? F8Dot::kStep : kTileDepth;
      tiles_ = (end_ - begin_ + step - 1) / step * (step / kTileDepth);
      make_panel();
      if (is_f8_) lay_out_scales();
      if (column_tiles_ == 1) {
        is_f8_ ? add_f8_to_one() : add_bf16_to_one();
      } else {
        is_f8_ ? add_f8_to_many() : add_bf16_to_many();
      }
    }
    put();
  }

  // The panel of x: [column tile, tile of k, part] tiles.
  char* x_tile(int64_t column, int64_t k) const {
    return panel_ + (column * tiles_ + k) * parts_ * x_tile_bytes();
  }

  void make_panel() {
    for (int64_t column = 0; column < column_tiles_; ++column) {
      const int64_t left = t_.num_x - column * kTileDim;
      const int64_t rows = left < kTileDim ? left : kTileDim;
      const float* const* x = t_.x + column * kTileDim;
      for (int64_t k = 0; k < tiles_; ++k)
        is_f8_ ? pack_f8(x, rows, k, x_tile(column, k))
               : pack_floats(x, rows, k, x_tile(column, k));
    }
  }

  // [blocks of the panel, column tile, 16]: for the lanes of a vector of sums, of which columns_ follow each other. A
  // panel has fewer blocks the more column tiles there are.
  void lay_out_scales() {
    float* out = x_scales_;
    for (int64_t block = begin_ / kScaleBlock; block * kScaleBlock < end_; ++block)
      for (int64_t column = 0; column < column_tiles_; ++column)
        for (int64_t lane = 0; lane < 16; ++lane) {
          const int64_t i = column * kTileDim + lane % columns_;
          *out++ = i < t_.num_x ? t_.x_scale[i][block] : 0;
        }
  }

  void pack_f8(const float* const* x, int64_t rows, int64_t k, char* out) const {
    __m512i row[16];
    for (int64_t i = 0; i < rows; ++i)
      row[i] =
          _mm512_loadu_si512(reinterpret_cast<const uint16_t*>(x[i]) + begin_ + k * kTileDepth);
    put_tile(row, rows, columns_, reinterpret_cast<uint32_t*>(out));
  }

  void pack_floats(const float* const* x, int64_t rows, int64_t k, char* out) const {
    const int64_t from = begin_ + k * kTileDepth, left = end_ - from;
    const __mmask16 low = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    const __mmask16 high = left >= 32   ? 0xFFFF
                           : left <= 16 ? 0
                                        : static_cast<__mmask16>((1u << (left - 16)) - 1);
    __m512i row[3][16];
    for (int64_t i = 0; i < rows; ++i) {
      const SplitFloats split = SplitFloats::of(_mm512_maskz_loadu_ps(low, x[i] + from),
                                                _mm512_maskz_loadu_ps(high, x[i] + from + 16));
      for (int part = 0; part < 3; ++part) row[part][i] = split.part[part];
    }
    for (int part = 0; part < 3; ++part)
      put_tile(row[part], rows, columns_, reinterpret_cast<uint32_t*>(out + part * x_tile_bytes()));
  }

  // Sums of a tile of weight rows with a tile of x: [16 rows, columns_].
  float* sums(int64_t row, int64_t column) const {
    return sums_ + (row / kTileDim * column_tiles_ + column) * kTileDim * columns_;
  }

  // Tiles of k of the panel.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  Range piece_from(int64_t k, int64_t size) const {
    return {k, k + size < tiles_ ? k + size : tiles_};
  }
  bool has_rows(int64_t row) const { return row < t_.num_w; }
  int64_t rows_from(int64_t row) const {
    return t_.num_w - row < kTileDim ? t_.num_w - row : kTileDim;
  }

  // One tile of x: memory bounds it. The processor fetches ahead along each of 16 rows, not of 64, nor where software
  // asks as well.
  void add_bf16_to_one() {
    for (int64_t row = 0; row < t_.num_w; row += kTileDim)
      for (int64_t k = 0; k < tiles_; k += kPieceTiles) {
        const Range range = piece_from(k, kPieceTiles);
        add_one(bf16_tiles(row, range), range, sums(row, 0), begin_ > 0 || k > 0);
      }
  }

  // Where they lie, but for rows that are fewer than 16 and a last tile that ends within 32 elements.
  WeightTiles bf16_tiles(int64_t row, Range range) const {
    const int64_t rows = rows_from(row);
    const bool ends_within = range.end == tiles_ && (end_ - begin_) % kTileDepth != 0;
    if (rows < kTileDim) {
      copy_tiles(row, range, staged_);
      return {.data = staged_, .row_bytes = 64, .tile_bytes = kTileBytes};
    }
    if (ends_within) copy_tiles(row, {range.end - 1, range.end}, staged_);
    return {.data = reinterpret_cast<const char*>(bf16_row(row) + range.begin * kTileDepth),
            .row_bytes = 2 * t_.w_stride,
            .tile_bytes = 2 * kTileDepth,
            .last = ends_within ? staged_ : nullptr};
  }

  const uint16_t* bf16_row(int64_t row) const {
    return static_cast<const uint16_t*>(t_.w) + row * t_.w_stride + begin_;
  }

  // Tiles of up to 16 rows, zeros behind the end of k. Row by row, as memory has them.
  void copy_tiles(int64_t row, Range range, char* out) const {
    const uint16_t* w = bf16_row(row);
    const int64_t rows = rows_from(row), elements = end_ - begin_;
    for (int64_t i = 0; i < rows; ++i, w += t_.w_stride)
      for (int64_t k = range.begin; k < range.end; ++k) {
        const int64_t left = elements - k * kTileDepth;
        const __mmask32 there = left >= kTileDepth ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
        _mm512_store_si512(out + (k - range.begin) * kTileBytes + 64 * i,
                           _mm512_maskz_loadu_epi16(there, w + k * kTileDepth));
      }
  }

  // Many tiles of x: a piece of 64 weight rows stays in the first-level cache while they pass by.
  void add_bf16_to_many() {
    for (int64_t row = 0; row < t_.num_w; row += 4 * kTileDim)
      for (int64_t k = 0; k < tiles_; k += kPieceTiles) {
        const Range range = piece_from(k, kPieceTiles);
        for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
          copy_tiles(row + i * kTileDim, range, staged_four(i));
        for (int64_t column = 0; column < column_tiles_; ++column) {
          float* out[4];
          for (int64_t i = 0; i < 4; ++i)
            out[i] = has_rows(row + i * kTileDim) ? sums(row + i * kTileDim, column) : fresh_;
          add_four(column, range, out, begin_ > 0 || k > 0);
        }
      }
  }

  // The processor does not fetch far enough ahead here; the rows of the next call of widen_tiles are asked for.
  void add_f8_to_one() {
    for (int64_t row = 0; row < t_.num_w; row += kTileDim)
      for (int64_t k = 0; k < tiles_; k += kWideTiles) {
        const Range range = piece_from(k, kWideTiles);
        widen_tiles(row, range, staged_);
        for (int64_t b = 0; b * kBlockTiles < range.size(); ++b) {
          const Range block = piece_from(k + b * kBlockTiles, kBlockTiles);
          add_one({.data = staged_ + b * kBlockTiles * kTileBytes,
                   .row_bytes = 64,
                   .tile_bytes = kTileBytes},
                  block, fresh(b), /*goes_on=*/false);
        }
        for (int64_t b = 0; b * kBlockTiles < range.size(); ++b)
          add_scaled(row, 0, block_of(k + b * kBlockTiles), fresh(b));
      }
  }

  void add_f8_to_many() {
    for (int64_t row = 0; row < t_.num_w; row += 4 * kTileDim)
      for (int64_t k = 0; k < tiles_; k += kBlockTiles) {
        const Range range = piece_from(k, kBlockTiles);
        for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
          widen_tiles(row + i * kTileDim, range, staged_four(i));
        float* const out[4] = {fresh(0), fresh(1), fresh(2), fresh(3)};
        for (int64_t column = 0; column < column_tiles_; ++column) {
          add_four(column, range, out, /*goes_on=*/false);
          for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
            add_scaled(row + i * kTileDim, column, block_of(k), out[i]);
        }
      }
  }

  char* staged_four(int64_t i) const { return staged_ + i * kPieceTiles * kTileBytes; }
  float* fresh(int64_t i) const { return fresh_ + i * kTileBytes / 4; }
  int64_t block_of(int64_t k) const { return (begin_ + k * kTileDepth) / kScaleBlock; }

  // Tiles of up to 16 rows, whose elements lie as PackedStep has them, as those of x do.
  void widen_tiles(int64_t row, Range range, char* out) const {
    const int64_t from = begin_ + range.begin * kTileDepth, rows = rows_from(row);
    const int64_t stop =
        begin_ + range.end * kTileDepth < end_ ? begin_ + range.end * kTileDepth : end_;
    const uint8_t* w = static_cast<const uint8_t*>(t_.w) + row * t_.w_stride;
    for (int64_t k = from; k < stop; k += F8Dot::kStep) {
      const int64_t left = stop - k;
      const uint8_t* at = w + k;
      char* to = out + (k - from) / kTileDepth * kTileBytes;
      for (int64_t i = 0; i < rows; ++i, at += t_.w_stride, to += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kTileDim * t_.w_stride), _MM_HINT_T1);
        const PackedStep step =
            left >= F8Dot::kStep ? widener_.load(at) : widener_.load_partial(at, left);
        _mm512_store_si512(to, step.v[0]);
        _mm512_store_si512(to + kTileBytes, step.v[1]);
      }
    }
  }

  // Adds the sums of one block of 128 channels times its scales.
  void add_scaled(int64_t row, int64_t column, int64_t block, const float* add) const {
    const int64_t place = (block - begin_ / kScaleBlock) * column_tiles_ + column;
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(x_scales_ + place * 16),
                                       _mm512_set1_ps(scale_row(row)[block]));
    float* const total = sums(row, column);
    for (int64_t k = 0; k < kTileDim * columns_; k += 16) {
      const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total + k);
      _mm512_store_ps(total + k, _mm512_fmadd_ps(_mm512_load_ps(add + k), scale, before));
    }
  }

  const float* scale_row(int64_t row) const {
    const int64_t first = t_.w_row / kScaleBlock;
    return t_.w_scale + ((t_.w_row + row) / kScaleBlock - first) * t_.w_scale_stride;
  }

  // out (+)= sixteen weight rows times the only tile of x. The intrinsics take numbers of tiles as literals.
  void add_one(const WeightTiles& w, Range range, float* out, bool goes_on) const {
    const int64_t stride = 4 * columns_, part = x_tile_bytes();
    _tile_zero(0);
    if (goes_on) _tile_loadd(0, out, stride);
    for (int64_t k = 0; k < range.size(); ++k) {
      const char* const x = x_tile(0, range.begin + k);
      if (w.last != nullptr && k == range.size() - 1) {
        _tile_loadd(4, w.last, 64);
      } else {
        _tile_loadd(4, w.data + k * w.tile_bytes, w.row_bytes);
      }
      _tile_loadd(5, x, stride);
      _tile_dpbf16ps(0, 4, 5);
      if (is_f8_) continue;
      _tile_loadd(6, x + part, stride);
      _tile_loadd(7, x + 2 * part, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 4, 7);
    }
    _tile_stored(0, out, stride);
  }

  // Sixty-four staged weight rows times one tile of x.
  void add_four(int64_t column, Range range, float* const (&out)[4], bool goes_on) const {
    constexpr int64_t kStride = 64;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (goes_on) {
      _tile_loadd(0, out[0], kStride);
      _tile_loadd(1, out[1], kStride);
      _tile_loadd(2, out[2], kStride);
      _tile_loadd(3, out[3], kStride);
    }
    for (int64_t k = 0; k < range.size(); ++k)
      is_f8_ ? add_four_products(k, x_tile(column, range.begin + k))
             : add_four_times_three(k, x_tile(column, range.begin + k));
    _tile_stored(0, out[0], kStride);
    _tile_stored(1, out[1], kStride);
    _tile_stored(2, out[2], kStride);
    _tile_stored(3, out[3], kStride);
  }

  [[gnu::always_inline]] void add_four_products(int64_t k, const char* x) const {
    const char* const w = staged_ + k * kTileBytes;
    constexpr int64_t kNext = kPieceTiles * kTileBytes;
    _tile_loadd(5, x, 64);
    _tile_loadd(4, w, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(4, w + kNext, 64);
    _tile_dpbf16ps(1, 4, 5);
    _tile_loadd(4, w + 2 * kNext, 64);
    _tile_dpbf16ps(2, 4, 5);
    _tile_loadd(4, w + 3 * kNext, 64);
    _tile_dpbf16ps(3, 4, 5);
  }

  [[gnu::always_inline]] void add_four_times_three(int64_t k, const char* x) const {
    const char* const w = staged_ + k * kTileBytes;
    constexpr int64_t kNext = kPieceTiles * kTileBytes;
    _tile_loadd(5, x, 64);
    _tile_loadd(6, x + kTileBytes, 64);
    _tile_loadd(7, x + 2 * kTileBytes, 64);
    _tile_loadd(4, w, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(4, w + kNext, 64);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, w + 2 * kNext, 64);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(4, w + 3 * kNext, 64);
    _tile_dpbf16ps(3, 4, 5);
    _tile_dpbf16ps(3, 4, 6);
    _tile_dpbf16ps(3, 4, 7);
  }

  void put() const {
    for (int64_t row = 0; row < t_.num_w; row += kTileDim)
      for (int64_t column = 0; column < column_tiles_; ++column)
        columns_ == kTileDim ? put_transposed(row, column) : put_few(row);
  }

  void put_transposed(int64_t row, int64_t column) const {
    const float* const from = sums(row, column);
    __m512i r[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + 16 * i);
    transpose(r);
    const __mmask16 there = static_cast<__mmask16>((1u << rows_from(row)) - 1);
    const int64_t begin = column * kTileDim;
    const int64_t end = begin + kTileDim < t_.num_x ? begin + kTileDim : t_.num_x;
    for (int64_t i = begin; i < end; ++i) {
      float* const out = t_.out[i] + t_.out_begin + row;
      __m512 sum = _mm512_castsi512_ps(r[i - begin]);
      if (t_.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, out), sum);
      _mm512_mask_storeu_ps(out, there, sum);
    }
  }

  void put_few(int64_t row) const {
    for (int64_t i = 0; i < t_.num_x; ++i) {
      const float* const from = sums(row, 0) + i;
      float* const out = t_.out[i] + t_.out_begin + row;
      for (int64_t r = 0; r < rows_from(row); ++r)
        out[r] = t_.accumulate ? out[r] + from[r * columns_] : from[r * columns_];
    }
  }

  const MatmulTile& t_;
  const bool is_f8_;
  const int64_t parts_;         // bf16 rows that a row of x is the sum of
  const int64_t column_tiles_;  // tiles of x
  const int64_t columns_;       // rows of x in a tile
  const F8Widener widener_;
  // The workspace: x for the tiles; weights that are copied or widened; four tiles of sums; all sums; scales of x.
  char* const panel_;
  char* const staged_;
  float* const fresh_;
  float* const sums_;
  float* const x_scales_;
  int64_t begin_ = 0, end_ = 0, tiles_ = 0;  // what the panel has of k, and its tiles
};

}  // namespace
}  // namespace fathom::cpu
