#pragma once
// Matrix products by tile registers (amx_tile.h). Included by amx.cc only.
//
// bf16 weights: float32 rows of x are the sums of three bf16 rows, so a product is three passes with the exact bits of
// x, and still five times as fast as float32 vectors. e4m3 weights and their quantised rows of x are bf16 values
// already: one pass, after 64 weights were widened by five byte operations (f8_widen.h).
//
// A call reads weights where they lie, for all its rows of x. Those are laid out for the tiles once a call, so it
// should have hundreds of weight rows where x has many (KernelTable::wide_rows).
//
// Order of sums: the processor's within 32 elements (pairs of k, in rising order), of which first the upper, then the
// middle, then the lower parts of x are added; e4m3 begins anew each 128 channels and adds the scaled sum of each. A
// column of a tile knows nothing of its neighbours, so it is the same for one row and for many.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/amx_products.h"
#include "cpu/isa/amx_tile.h"
#include "cpu/isa/f8_widen.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

class AmxMatmul : AmxProducts {
 public:
  using AmxProducts::kMaxRows;

  static void run(const MatmulTile& t) {
    if (t.kind == WeightKind::kF32) return run_by_vectors(t);
    AmxMatmul(t).multiply();
    _tile_release();
  }

 private:
  static constexpr int64_t kBlockTiles = kScaleBlock / kTileDepth;

  explicit AmxMatmul(const MatmulTile& t)
      : AmxProducts(t, t.kind == WeightKind::kF8 ? 1 : 3), is_f8_(t.kind == WeightKind::kF8) {}

  void multiply() {
    configure_tiles(columns);
    for (int64_t begin = 0; begin < tile.in; begin = panel_end) {
      // A PackedStep of e4m3 values is two tiles, however few are in it.
      enter_panel(begin, is_f8_ ? kPackedStep : kTileDepth);
      make_panel();
      if (is_f8_) lay_out_scales();
      if (column_tiles == 1) {
        is_f8_ ? add_f8_to_one() : add_bf16_to_one();
      } else {
        is_f8_ ? add_f8_to_many() : add_bf16_to_many();
      }
    }
    put();
  }

  void make_panel() {
    for (int64_t column = 0; column < column_tiles; ++column) {
      const int64_t rows = x_rows(column);
      const float* const* x = tile.x + column * kTileDim;
      for (int64_t k = 0; k < panel_tiles; ++k)
        is_f8_ ? pack_bf16(x, rows, k, x_tile(column, k))
               : pack_floats(x, rows, k, x_tile(column, k));
    }
  }

  void pack_floats(const float* const* x, int64_t rows, int64_t k, char* out) const {
    const int64_t from = panel_begin + k * kTileDepth, left = panel_end - from;
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
      put_tile(row[part], rows, columns, reinterpret_cast<uint32_t*>(out + part * x_tile_bytes()));
  }

  // One tile of x: memory bounds it. The processor fetches ahead along each of 16 rows, not of 64, nor where software
  // asks as well.
  void add_bf16_to_one() {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += kPieceTiles) {
        const Range range = piece_from(k, kPieceTiles);
        add_one(tiles_in_place(row, range), range, sums(row, 0), panel_begin > 0 || k > 0);
      }
  }

  // Many tiles of x: a piece of 64 weight rows stays in the first-level cache while they pass by.
  void add_bf16_to_many() {
    for (int64_t row = 0; row < tile.num_w; row += 4 * kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += kPieceTiles) {
        const Range range = piece_from(k, kPieceTiles);
        stage_four(row, range);
        for (int64_t column = 0; column < column_tiles; ++column)
          add_four(column, range, sums_of_four(row, column), panel_begin > 0 || k > 0);
      }
  }

  // The processor does not fetch far enough ahead here; the rows of the next call of widen_tiles are asked for.
  void add_f8_to_one() {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += kWideTiles) {
        const Range range = piece_from(k, kWideTiles);
        widen_tiles(row, range, staged);
        for (int64_t b = 0; b * kBlockTiles < range.size(); ++b) {
          const Range block = piece_from(k + b * kBlockTiles, kBlockTiles);
          add_one({.data = staged + b * kBlockTiles * kTileBytes,
                   .row_bytes = 64,
                   .tile_bytes = kTileBytes},
                  block, fresh(b), /*goes_on=*/false);
        }
        for (int64_t b = 0; b * kBlockTiles < range.size(); ++b)
          add_scaled(row, 0, block_of(k + b * kBlockTiles), fresh(b));
      }
  }

  void add_f8_to_many() {
    for (int64_t row = 0; row < tile.num_w; row += 4 * kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += kBlockTiles) {
        const Range range = piece_from(k, kBlockTiles);
        for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
          widen_tiles(row + i * kTileDim, range, staged_four(i));
        for (int64_t column = 0; column < column_tiles; ++column) {
          add_four(column, range, {{fresh(0), fresh(1), fresh(2), fresh(3)}}, /*goes_on=*/false);
          for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
            add_scaled(row + i * kTileDim, column, block_of(k), fresh(i));
        }
      }
  }

  // Tiles of up to 16 rows, whose elements lie as PackedStep has them, as those of x do.
  void widen_tiles(int64_t row, Range range, char* out) const {
    const int64_t from = panel_begin + range.begin * kTileDepth, rows = rows_from(row);
    const int64_t stop = panel_begin + range.end * kTileDepth < panel_end
                             ? panel_begin + range.end * kTileDepth
                             : panel_end;
    const uint8_t* w = static_cast<const uint8_t*>(tile.w) + row * tile.w_stride;
    for (int64_t k = from; k < stop; k += kPackedStep) {
      const int64_t left = stop - k;
      const uint8_t* at = w + k;
      char* to = out + (k - from) / kTileDepth * kTileBytes;
      for (int64_t i = 0; i < rows; ++i, at += tile.w_stride, to += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kTileDim * tile.w_stride), _MM_HINT_T1);
        const PackedStep step =
            left >= kPackedStep ? widener_.load(at) : widener_.load_partial(at, left);
        _mm512_store_si512(to, step.v[0]);
        _mm512_store_si512(to + kTileBytes, step.v[1]);
      }
    }
  }

  // Adds the sums of one block of 128 channels times its scales.
  void add_scaled(int64_t row, int64_t column, int64_t block, const float* add) const {
    const __m512 scale = scales(row, column, block);
    float* const total = sums(row, column);
    for (int64_t k = 0; k < kTileDim * columns; k += 16) {
      const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total + k);
      _mm512_store_ps(total + k, _mm512_fmadd_ps(_mm512_load_ps(add + k), scale, before));
    }
  }

  const bool is_f8_;
  const F8Widener widener_;
};

}  // namespace
}  // namespace fathom::cpu
