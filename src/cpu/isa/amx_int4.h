#pragma once
// Products with i4 and u4 weights by tile registers (amx_products.h). Included by amx.cc only.
//
// Weights are widened to bf16, sixteen rows of 256 at once (i4_widen.h). i4: rows of x are e4m3 values, one pass. u4:
// float32 rows of x in three passes, with q - 8 as weights; what is left of the zero point is (8 - zero) times the sum
// of the group's elements of x, which is the same for all weight rows.
//
// Order of sums: as AmxMatmul's, anew for each group of channels, whose sums times their scales follow each other.

#include <immintrin.h>

#include <cstdint>

#include "cpu/isa/amx_products.h"
#include "cpu/isa/amx_tile.h"
#include "cpu/isa/i4_widen.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

class AmxInt4 : AmxProducts {
 public:
  static void run(const MatmulTile& t) {
    // Groups of 32 channels are no whole step.
    if (t.kind == WeightKind::kU4 && t.zero_channels < kStep) return run_by_vectors(t);
    AmxInt4(t).multiply();
    _tile_release();
  }

 private:
  static constexpr int64_t kStep = kPackedStep, kStepTiles = kStep / kTileDepth;
  // Lanes of the scales and of what they come with: of 16 weight rows of the longest panel, or of 64 of one that more
  // tiles of x leave room for.
  static constexpr int64_t kLaneFloats = 2 * kMaxDepth / kStep * 16;
  static_assert(kFrameBytes + kLaneFloats * 4 <= kWorkspaceBytes);

  explicit AmxInt4(const MatmulTile& t)
      : AmxProducts(t, t.kind == WeightKind::kU4 ? 3 : 1),
        is_u4_(t.kind == WeightKind::kU4),
        channels_(is_u4_ ? t.zero_channels : kScaleBlock),
        lanes_(static_cast<float*>(t.workspace) + kFrameBytes / 4),
        widener_(is_u4_ ? kU4Bytes : kI4Bytes) {}

  void multiply() {
    configure_tiles(columns);
    for (int64_t begin = 0; begin < tile.in; begin = panel_end) {
      enter_panel(begin, kStep);
      groups_ = (panel_end - panel_begin + channels_ - 1) / channels_;
      make_panel();
      is_u4_ ? lay_out_x_sums() : lay_out_scales();
      column_tiles == 1 ? add_to_one() : add_to_many();
    }
    put();
  }

  void make_panel() {
    for (int64_t column = 0; column < column_tiles; ++column) {
      const float* const* x = tile.x + column * kTileDim;
      for (int64_t k = 0; k < panel_tiles; ++k)
        is_u4_ ? pack_floats(x, x_rows(column), k, x_tile(column, k))
               : pack_bf16(x, x_rows(column), k, x_tile(column, k));
    }
  }

  void pack_floats(const float* const* x, int64_t rows, int64_t k, char* out) const {
    const int64_t from = panel_begin + k / kStepTiles * kStep + k % kStepTiles * 16;
    __m512i row[3][16];
    for (int64_t i = 0; i < rows; ++i) {
      const SplitFloats split =
          SplitFloats::of(_mm512_loadu_ps(x[i] + from), _mm512_loadu_ps(x[i] + from + 32));
      for (int part = 0; part < 3; ++part) row[part][i] = evens_first(split.part[part]);
    }
    for (int part = 0; part < 3; ++part)
      put_tile(row[part], rows, columns, reinterpret_cast<uint32_t*>(out + part * x_tile_bytes()));
  }

  // In the place of lay_out_scales(): of the elements of x of each group.
  void lay_out_x_sums() {
    float* out = x_scale_lanes;
    for (int64_t begin = panel_begin; begin < panel_end; begin += channels_)
      for (int64_t i = 0; i < column_tiles * kTileDim; i += kTileDim, out += 16)
        for (int64_t lane = 0; lane < 16; ++lane) {
          if (lane >= columns) {
            out[lane] = out[lane - columns];
          } else {
            out[lane] = i + lane < tile.num_x ? sum_of(tile.x[i + lane] + begin) : 0;
          }
        }
  }
  float sum_of(const float* x) const {
    __m512 sum = _mm512_loadu_ps(x);
    for (int64_t k = 16; k < channels_; k += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + k));
    return _mm512_reduce_add_ps(sum);
  }

  // Of `i`th sixteen rows: those of a group of the panel, in two parts: scales, and 8 - zero points.
  float* row_lanes(int64_t i, int64_t group, int64_t part) const {
    return lanes_ + ((i * (is_u4_ ? 2 : 1) + part) * groups_ + group) * 16;
  }
  void lay_out_rows(int64_t row, int64_t i) const {
    const int64_t first = panel_begin / channels_;
    for (int64_t group = 0; group < groups_; group += 16) {
      const int64_t left = groups_ - group < 16 ? groups_ - group : 16;
      const __mmask16 there = static_cast<__mmask16>((1u << left) - 1);
      for (int64_t part = 0; part < (is_u4_ ? 2 : 1); ++part) {
        __m512i r[16];
        for (int64_t j = 0; j < 16; ++j)
          r[j] = j < rows_from(row)
                     ? _mm512_castps_si512(of_groups(row + j, first + group, part, there))
                     : _mm512_setzero_si512();
        transpose(r);
        for (int64_t j = 0; j < left; ++j) _mm512_store_si512(row_lanes(i, group + j, part), r[j]);
      }
    }
  }
  // Sixteen groups of a weight row.
  __m512 of_groups(int64_t row, int64_t group, int64_t part, __mmask16 there) const {
    if (!is_u4_)
      return _mm512_maskz_loadu_ps(there, tile.w_scale + row * tile.w_scale_stride + group);
    const int64_t all = tile.in / channels_;
    const __m512 values = _mm512_cvtph_ps(
        _mm256_maskz_loadu_epi16(there, tile.w_zeros + (row * 2 + part) * all + group));
    return part == 0 ? values : _mm512_sub_ps(_mm512_set1_ps(float{kU4Offset}), values);
  }

  int64_t group_tiles() const { return channels_ / kTileDepth; }

  void add_to_one() const {
    for (int64_t row = 0; row < tile.num_w; row += kTileDim) {
      lay_out_rows(row, 0);
      for (int64_t k = 0; k < panel_tiles; k += kWideTiles) {
        const Range range = piece_from(k, kWideTiles);
        widen_tiles(row, range, staged);
        const int64_t step = group_tiles();
        for (int64_t from = 0, g = 0; from < range.size(); from += step, ++g)
          add_one({.data = staged + from * kTileBytes, .row_bytes = 64, .tile_bytes = kTileBytes},
                  piece_from(k + from, step), fresh(g), /*goes_on=*/false);
        for (int64_t from = 0, g = 0; from < range.size(); from += step, ++g)
          add_scaled({.row = row, .group = (k + from) / step}, fresh(g));
      }
    }
  }

  void add_to_many() const {
    for (int64_t row = 0; row < tile.num_w; row += 4 * kTileDim) {
      for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
        lay_out_rows(row + i * kTileDim, i);
      for (int64_t k = 0; k < panel_tiles; k += group_tiles()) {
        const Range range = piece_from(k, group_tiles());
        for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
          widen_tiles(row + i * kTileDim, range, staged_four(i));
        for (int64_t column = 0; column < column_tiles; ++column) {
          add_four(column, range, {{fresh(0), fresh(1), fresh(2), fresh(3)}}, /*goes_on=*/false);
          for (int64_t i = 0; i < 4 && has_rows(row + i * kTileDim); ++i)
            add_scaled({.row = row + i * kTileDim,
                        .lanes = i,
                        .column = column,
                        .group = k / group_tiles()},
                       fresh(i));
        }
      }
    }
  }

  // Tiles of up to 16 rows. The rows of the next call are asked for.
  void widen_tiles(int64_t row, Range range, char* out) const {
    const int64_t from = panel_begin + range.begin * kTileDepth, rows = rows_from(row);
    const int64_t stop = panel_begin + range.end * kTileDepth < panel_end
                             ? panel_begin + range.end * kTileDepth
                             : panel_end;
    const int64_t stride = tile.w_stride / 2;
    const uint8_t* const w = static_cast<const uint8_t*>(tile.w) + row * stride;
    for (int64_t k = from; k < stop; k += kStep) {
      const int64_t left = stop - k;
      const uint8_t* at = w + k / 2;
      char* to = out + (k - from) / kTileDepth * kTileBytes;
      for (int64_t i = 0; i < rows; ++i, at += stride, to += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kTileDim * stride), _MM_HINT_T1);
        const PackedStep step = left >= kStep ? widener_.load(at) : widener_.load_partial(at, left);
        _mm512_store_si512(to, step.v[0]);
        _mm512_store_si512(to + kTileBytes, step.v[1]);
      }
    }
  }

  // Sixteen weight rows with a tile of x in a group of the panel.
  struct Place {
    int64_t row = 0, lanes = 0, column = 0, group = 0;
  };
  // Adds the sums of one group times its scales.
  void add_scaled(const Place& at, const float* add) const {
    const __m512 x = _mm512_load_ps(x_scale_lanes + (at.group * column_tiles + at.column) * 16);
    const __m512 scale = _mm512_load_ps(row_lanes(at.lanes, at.group, 0));
    const __m512 zero = _mm512_load_ps(row_lanes(at.lanes, at.group, is_u4_ ? 1 : 0));
    const bool is_first = panel_begin == 0 && at.group == 0;
    const int shift = __builtin_ctzll(static_cast<uint64_t>(columns));
    __m512i rows =
        _mm512_srli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                          static_cast<unsigned>(shift));
    const __m512i next = _mm512_set1_epi32(16 >> shift);
    float* const total = sums(at.row, at.column);
    for (int64_t k = 0; k < kTileDim * columns; k += 16, rows = _mm512_add_epi32(rows, next)) {
      const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(total + k);
      __m512 sum = _mm512_load_ps(add + k), by = _mm512_permutexvar_ps(rows, scale);
      if (is_u4_) {
        sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(rows, zero), x, sum);
      } else {
        by = _mm512_mul_ps(x, by);
      }
      _mm512_store_ps(total + k, _mm512_fmadd_ps(sum, by, before));
    }
  }

  const bool is_u4_;
  const int64_t channels_;  // of a group
  float* const lanes_;
  const PairWidener widener_;
  int64_t groups_ = 0;  // of the panel
};

}  // namespace
}  // namespace fathom::cpu
