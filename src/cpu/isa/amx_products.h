#pragma once
// What products of bf16 tiles share, whatever the weights are in memory (amx_matmul.h, amx_int4.h): one pass over
// rows of x that are bf16 values, or three over what float32 rows were cut into. Included by amx.cc only.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/amx_frame.h"
#include "cpu/isa/amx_tile.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

class AmxProducts : protected TileFrame<MatmulTile> {
 public:
  using TileFrame::kMaxRows;

  // By vectors, whose tiles have fewer weight rows.
  static void run_by_vectors(MatmulTile t) {
    const KernelTable& vectors = avx512_kernels();
    const int64_t most = t.num_x <= vectors.direct_tokens ? vectors.direct_rows : vectors.wide_rows;
    const int64_t end = t.num_w;
    for (int64_t row = 0; row < end; row += most) {
      t.num_w = end - row < most ? end - row : most;
      vectors.matmul(t);
      const bool of_pairs = t.kind == WeightKind::kU4;
      t.w = static_cast<const char*>(t.w) + t.num_w * t.w_stride * (of_pairs ? 1 : 8) / 2;
      if (of_pairs) t.w_zeros += t.num_w * 2 * (t.in / t.zero_channels);
      t.out_begin += t.num_w;
    }
  }

 protected:
  static constexpr int64_t kWideTiles = 8;  // of 16 rows that are widened at once

  // passes: 1 or 3.
  AmxProducts(const MatmulTile& t, int64_t passes)
      : TileFrame(t, {.elements = kTileDepth, .parts = passes}) {}

  bool one_pass() const { return parts == 1; }

  // Rows that are bf16 values already.
  void pack_bf16(const float* const* x, int64_t rows, int64_t k, char* out) const {
    __m512i row[16];
    for (int64_t i = 0; i < rows; ++i)
      row[i] = _mm512_loadu_si512(reinterpret_cast<const uint16_t*>(x[i]) + panel_begin +
                                  k * kTileDepth);
    put_tile(row, rows, columns, reinterpret_cast<uint32_t*>(out));
  }

  // out (+)= sixteen weight rows times the only tile of x. The intrinsics take numbers of tiles as literals.
  void add_one(const WeightTiles& w, Range range, float* out, bool goes_on) const {
    const int64_t stride = 4 * columns, part = x_tile_bytes();
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
      if (one_pass()) continue;
      _tile_loadd(6, x + part, stride);
      _tile_loadd(7, x + 2 * part, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(0, 4, 7);
    }
    _tile_stored(0, out, stride);
  }

  // Sixty-four staged weight rows times one tile of x.
  void add_four(int64_t column, Range range, const Four& to, bool goes_on) const {
    load_four(to, goes_on);
    for (int64_t k = 0; k < range.size(); ++k)
      one_pass() ? add_four_products(k, x_tile(column, range.begin + k))
                 : add_four_times_three(k, x_tile(column, range.begin + k));
    store_four(to);
  }

  [[gnu::always_inline]] void add_four_products(int64_t k, const char* x) const {
    const char* const w = staged + k * kTileBytes;
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
    const char* const w = staged + k * kTileBytes;
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
};

}  // namespace
}  // namespace fathom::cpu
