#pragma once
// Products with i8 weights by tile registers (TDPBSSD: 16 weight rows of 64 bytes with 16 groups of four for up to 16
// rows of x, 16,384 multiply-adds in 16 cycles). Included by amx.cc only.
//
// Sums of integers are exact, and what follows them is written as cpu/integer/matmul.h has it, so the bits are those of
// every other instruction set.

#include <immintrin.h>

#include <cstdint>

#include "cpu/integer/kernels.h"
#include "cpu/isa/amx_frame.h"
#include "cpu/isa/amx_tile.h"

namespace fathom::cpu {
namespace {

class AmxInt8 : TileFrame<integer::Tile> {
 public:
  using TileFrame::kMaxRows;

  static void run(const integer::Tile& t) {
    AmxInt8(t).multiply();
    _tile_release();
  }

 private:
  static constexpr int64_t kDepth = 64, kBlockTiles = kScaleBlock / kDepth;

  explicit AmxInt8(const integer::Tile& t) : TileFrame(t, {.elements = kDepth}) {}

  void multiply() {
    configure_tiles(columns);
    for (int64_t begin = 0; begin < tile.in; begin = panel_end) {
      enter_panel(begin, kDepth);
      make_panel();
      if (!tile.of_channels) lay_out_scales();
      column_tiles == 1 ? add_to_one() : add_to_many();
    }
    if (tile.of_channels) scale_channels();
    put();
  }

  // Rows of x end with zeros up to a whole tile.
  void make_panel() {
    for (int64_t column = 0; column < column_tiles; ++column) {
      const int8_t* const* x = tile.x + column * kTileDim;
      for (int64_t k = 0; k < panel_tiles; ++k) {
        __m512i row[16];
        for (int64_t i = 0; i < x_rows(column); ++i)
          row[i] = _mm512_loadu_si512(x[i] + panel_begin + k * kDepth);
        put_tile(row, x_rows(column), columns, reinterpret_cast<uint32_t*>(x_tile(column, k)));
      }
    }
  }

  // Blocks begin anew with each 128 channels; channels go on to the end of k.
  int64_t piece() const { return tile.of_channels ? kPieceTiles : kBlockTiles; }
  bool continues(int64_t k) const { return tile.of_channels && (panel_begin > 0 || k > 0); }

  void add_to_one() {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += piece()) {
        const Range range = piece_from(k, piece());
        float* const out = tile.of_channels ? sums(row, 0) : fresh_sums;
        add_one(tiles_in_place(row, range), range, out, continues(k));
        if (!tile.of_channels) add_scaled(row, 0, block_of(k), fresh_sums);
      }
  }

  void add_to_many() {
    for (int64_t row = 0; row < tile.num_w; row += 4 * kTileDim)
      for (int64_t k = 0; k < panel_tiles; k += piece()) {
        const Range range = piece_from(k, piece());
        stage_four(row, range);
        for (int64_t column = 0; column < column_tiles; ++column) {
          if (tile.of_channels) {
            add_four(column, range, sums_of_four(row, column), continues(k));
            continue;
          }
          add_four(column, range, {{fresh(0), fresh(1), fresh(2), fresh(3)}}, /*goes_on=*/false);
          for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
            add_scaled(row + i * kTileDim, column, block_of(k), fresh(i));
        }
      }
  }

  static __m512 to_floats(const float* integers) {
    return _mm512_cvtepi32_ps(_mm512_load_si512(integers));
  }

  // Adds the sums of one block of 128 channels times its scales, each operation rounded.
  void add_scaled(int64_t row, int64_t column, int64_t block, const float* add) const {
    const __m512 scale = scales(row, column, block);
    float* const total = sums(row, column);
    for (int64_t k = 0; k < kTileDim * columns; k += 16) {
      const __m512 before = block == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total + k);
      _mm512_store_ps(total + k, _mm512_add_ps(before, _mm512_mul_ps(to_floats(add + k), scale)));
    }
  }

  // Integer sums become floats times the scales of the row of x and of the weight row.
  void scale_channels() const {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim)
      for (int64_t column = 0; column < column_tiles; ++column)
        for (int64_t k = 0; k < kTileDim * columns; k += 16) {
          alignas(64) float x_scale[16], w_scale[16];
          for (int64_t lane = 0; lane < 16; ++lane) {
            const int64_t i = column * kTileDim + (k + lane) % columns;
            const int64_t r = row + (k + lane) / columns;
            x_scale[lane] = i < tile.num_x ? tile.x_scale[i][0] : 0;
            w_scale[lane] = has_rows(r) ? tile.w_scale[r] : 0;
          }
          float* const at = sums(row, column) + k;
          const __m512 scale = _mm512_mul_ps(_mm512_load_ps(x_scale), _mm512_load_ps(w_scale));
          _mm512_store_ps(at, _mm512_mul_ps(to_floats(at), scale));
        }
  }

  // As those of AmxMatmul. The intrinsics take numbers of tiles as literals.
  void add_one(const WeightTiles& w, Range range, float* out, bool goes_on) const {
    const int64_t stride = 4 * columns;
    _tile_zero(0);
    if (goes_on) _tile_loadd(0, out, stride);
    for (int64_t k = 0; k < range.size(); ++k) {
      if (w.last != nullptr && k == range.size() - 1) {
        _tile_loadd(4, w.last, 64);
      } else {
        _tile_loadd(4, w.data + k * w.tile_bytes, w.row_bytes);
      }
      _tile_loadd(5, x_tile(0, range.begin + k), stride);
      _tile_dpbssd(0, 4, 5);
    }
    _tile_stored(0, out, stride);
  }

  void add_four(int64_t column, Range range, const Four& to, bool goes_on) const {
    load_four(to, goes_on);
    constexpr int64_t kNext = kPieceTiles * kTileBytes;
    for (int64_t k = 0; k < range.size(); ++k) {
      const char* const w = staged + k * kTileBytes;
      _tile_loadd(5, x_tile(column, range.begin + k), 64);
      _tile_loadd(4, w, 64);
      _tile_dpbssd(0, 4, 5);
      _tile_loadd(4, w + kNext, 64);
      _tile_dpbssd(1, 4, 5);
      _tile_loadd(4, w + 2 * kNext, 64);
      _tile_dpbssd(2, 4, 5);
      _tile_loadd(4, w + 3 * kNext, 64);
      _tile_dpbssd(3, 4, 5);
    }
    store_four(to);
  }
};

}  // namespace
}  // namespace fathom::cpu
