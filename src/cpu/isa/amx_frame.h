#pragma once
// What products by tile registers share (amx_matmul.h, amx_int8.h): the workspace, how rows of x and of weights are cut
// into tiles, and how sums become outputs. Included by amx.cc only.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/amx_tile.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

// Tile: MatmulTile or integer::Tile.
template <class Tile>
class TileFrame {
 public:
  static constexpr int64_t kMaxRows = 1024;

 protected:
  static constexpr int64_t kPanelBytes = int64_t{288} << 10;
  static constexpr int64_t kPieceTiles =
      8;  // of k: 64 weight rows of a piece stay in the first-level cache
  static constexpr int64_t kStagedTiles = 4 * kPieceTiles;
  static constexpr int64_t kSumBytes = kMaxRows * kTileTokens * 4;
  static constexpr int64_t kMaxDepth = 9216;
  // Of groups of 64 channels at least.
  static constexpr int64_t kScaleBytes = kMaxDepth / 64 * 64;
  static constexpr int64_t kFrameBytes =
      kPanelBytes + (kStagedTiles + 4) * kTileBytes + kSumBytes + kScaleBytes;
  static_assert(kFrameBytes <= kWorkspaceBytes);

  // Of k in a tile.
  struct Depth {
    int64_t elements = 0;
    int64_t parts = 1;  // tiles of x that stand for one
  };

  TileFrame(const Tile& t, Depth depth)
      : tile(t),
        tile_depth(depth.elements),
        parts(depth.parts),
        column_tiles((t.num_x + kTileDim - 1) / kTileDim),
        columns(columns_of(t.num_x)),
        panel(static_cast<char*>(t.workspace)),
        staged(panel + kPanelBytes),
        fresh_sums(reinterpret_cast<float*>(staged + kStagedTiles * kTileBytes)),
        all_sums(fresh_sums + 4 * kTileBytes / 4),
        x_scale_lanes(all_sums + kSumBytes / 4) {}

  // Columns of a tile for so many rows of x.
  static int64_t columns_of(int64_t rows) {
    int64_t columns = 1;
    while (columns < rows && columns < kTileDim) columns *= 2;
    return columns;
  }

  int64_t x_tile_bytes() const { return 64 * columns; }
  // Elements of k whose panel there is room for.
  int64_t panel_depth() const {
    const int64_t depth = kPanelBytes / (column_tiles * parts * x_tile_bytes()) * tile_depth;
    return depth < kMaxDepth ? depth / kScaleBlock * kScaleBlock : kMaxDepth;
  }
  // Goes to the panel that begins at an element of k. `step`: elements that come together.
  void enter_panel(int64_t begin, int64_t step) {
    panel_begin = begin;
    panel_end = begin + panel_depth() < tile.in ? begin + panel_depth() : tile.in;
    panel_tiles = (panel_end - panel_begin + step - 1) / step * (step / tile_depth);
  }

  // The panel of x: [column tile, tile of k, part] tiles.
  char* x_tile(int64_t column, int64_t k) const {
    return panel + (column * panel_tiles + k) * parts * x_tile_bytes();
  }

  // Rows of x in a column tile.
  int64_t x_rows(int64_t column) const {
    const int64_t left = tile.num_x - column * kTileDim;
    return left < kTileDim ? left : kTileDim;
  }

  // [blocks of the panel, column tile, 16]: for the lanes of a vector of sums, of which columns follow each other. A
  // panel has fewer blocks the more column tiles there are.
  void lay_out_scales() {
    float* out = x_scale_lanes;
    for (int64_t block = panel_begin / kScaleBlock; block * kScaleBlock < panel_end; ++block)
      for (int64_t column = 0; column < column_tiles; ++column)
        for (int64_t lane = 0; lane < 16; ++lane) {
          const int64_t i = column * kTileDim + lane % columns;
          *out++ = i < tile.num_x ? tile.x_scale[i][block] : 0;
        }
  }
  // The scales of a column tile for a block, times the block's own for these weight rows.
  __m512 scales(int64_t row, int64_t column, int64_t block) const {
    const int64_t place = (block - panel_begin / kScaleBlock) * column_tiles + column;
    const int64_t first = tile.w_row / kScaleBlock;
    const float* const w_scale =
        tile.w_scale + ((tile.w_row + row) / kScaleBlock - first) * tile.w_scale_stride;
    return _mm512_mul_ps(_mm512_load_ps(x_scale_lanes + place * 16),
                         _mm512_set1_ps(w_scale[block]));
  }

  // Sums of a tile of weight rows with a tile of x: [16 rows, columns].
  float* sums(int64_t row, int64_t column) const {
    return all_sums + (row / kTileDim * column_tiles + column) * kTileDim * columns;
  }
  float* fresh(int64_t i) const { return fresh_sums + i * kTileBytes / 4; }
  char* staged_four(int64_t i) const { return staged + i * kPieceTiles * kTileBytes; }

  // Tiles of k of the panel.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  Range piece_from(int64_t k, int64_t size) const {
    return {k, k + size < panel_tiles ? k + size : panel_tiles};
  }
  int64_t block_of(int64_t k) const { return (panel_begin + k * tile_depth) / kScaleBlock; }

  bool has_rows(int64_t row) const { return row < tile.num_w; }
  int64_t rows_from(int64_t row) const {
    return tile.num_w - row < kTileDim ? tile.num_w - row : kTileDim;
  }
  int64_t element_bytes() const { return 64 / tile_depth; }
  const char* weight_row(int64_t row) const {
    return reinterpret_cast<const char*>(tile.w) +
           (row * tile.w_stride + panel_begin) * element_bytes();
  }

  // Weights where they lie, but for rows that are fewer than 16 and a last tile that ends within it.
  WeightTiles tiles_in_place(int64_t row, Range range) const {
    const bool ends_within =
        range.end == panel_tiles && (panel_end - panel_begin) % tile_depth != 0;
    if (rows_from(row) < kTileDim) {
      copy_tiles(row, range, staged);
      return {.data = staged, .row_bytes = 64, .tile_bytes = kTileBytes};
    }
    if (ends_within) copy_tiles(row, {range.end - 1, range.end}, staged);
    return {.data = weight_row(row) + range.begin * 64,
            .row_bytes = tile.w_stride * element_bytes(),
            .tile_bytes = 64,
            .last = ends_within ? staged : nullptr};
  }

  // Tiles of up to 16 rows, zeros behind the end of k. Row by row, as memory has them.
  void copy_tiles(int64_t row, Range range, char* out) const {
    const char* w = weight_row(row);
    const int64_t rows = rows_from(row), bytes = (panel_end - panel_begin) * element_bytes();
    for (int64_t i = 0; i < rows; ++i, w += tile.w_stride * element_bytes())
      for (int64_t k = range.begin; k < range.end; ++k) {
        const int64_t left = bytes - k * 64;
        const __mmask64 there = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
        _mm512_store_si512(out + (k - range.begin) * kTileBytes + 64 * i,
                           _mm512_maskz_loadu_epi8(there, w + k * 64));
      }
  }
  void stage_four(int64_t row, Range range) const {
    for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
      copy_tiles(row + i * kTileDim, range, staged_four(i));
  }
  // Where the sums of 64 rows are; those of rows that are not there go nowhere.
  struct Four {
    float* out[4];
  };
  Four sums_of_four(int64_t row, int64_t column) const {
    Four four;
    for (int64_t i = 0; i < 4; ++i)
      four.out[i] = has_rows(row + i * kTileDim) ? sums(row + i * kTileDim, column) : fresh_sums;
    return four;
  }

  // Tiles 0 to 3: what is there already, or zeros.
  static void load_four(const Four& to, bool goes_on) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!goes_on) return;
    _tile_loadd(0, to.out[0], 64);
    _tile_loadd(1, to.out[1], 64);
    _tile_loadd(2, to.out[2], 64);
    _tile_loadd(3, to.out[3], 64);
  }
  static void store_four(const Four& to) {
    _tile_stored(0, to.out[0], 64);
    _tile_stored(1, to.out[1], 64);
    _tile_stored(2, to.out[2], 64);
    _tile_stored(3, to.out[3], 64);
  }

  void put() const {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim)
      for (int64_t column = 0; column < column_tiles; ++column)
        columns == kTileDim ? put_transposed(row, column) : put_few(row);
  }

  void put_transposed(int64_t row, int64_t column) const {
    const float* const from = sums(row, column);
    __m512i r[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(from + 16 * i);
    transpose(r);
    const __mmask16 there = static_cast<__mmask16>((1u << rows_from(row)) - 1);
    const int64_t begin = column * kTileDim;
    const int64_t end = begin + kTileDim < tile.num_x ? begin + kTileDim : tile.num_x;
    for (int64_t i = begin; i < end; ++i) {
      float* const out = tile.out[i] + tile.out_begin + row;
      __m512 sum = _mm512_castsi512_ps(r[i - begin]);
      if (tile.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, out), sum);
      _mm512_mask_storeu_ps(out, there, sum);
    }
  }

  void put_few(int64_t row) const {
    for (int64_t i = 0; i < tile.num_x; ++i) {
      const float* const from = sums(row, 0) + i;
      float* const out = tile.out[i] + tile.out_begin + row;
      for (int64_t r = 0; r < rows_from(row); ++r)
        out[r] = tile.accumulate ? out[r] + from[r * columns] : from[r * columns];
    }
  }

  const Tile& tile;
  const int64_t tile_depth;    // elements of k in a tile
  const int64_t parts;         // tiles of x that stand for one
  const int64_t column_tiles;  // tiles of x
  const int64_t columns;       // rows of x in a tile
  // The workspace: x for the tiles; weights that are copied or widened; four tiles of sums; all sums; scales of x.
  char* const panel;
  char* const staged;
  float* const fresh_sums;
  float* const all_sums;
  float* const x_scale_lanes;
  int64_t panel_begin = 0, panel_end = 0,
          panel_tiles = 0;  // what the panel has of k, and its tiles
};

}  // namespace
}  // namespace fathom::cpu
