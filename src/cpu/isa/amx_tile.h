#pragma once
// Tile registers of AMX (Intel's Advanced Matrix Extensions) and what fills them: their configuration, products of
// bf16 pairs (TDPBF16PS), and panels of x in the form that they read (VNNI: pairs of k side by side). Included by
// amx.cc only.
//
// A product takes 16 weight rows of 32 elements as they lie in memory and 16 pairs of k for up to 16 rows of x, and
// adds to 16 x 16 sums: 8,192 multiply-adds in 16 cycles of a core, where float32 vectors take 256.

#include <immintrin.h>

#include <cstdint>

namespace fathom::cpu {
namespace {

inline constexpr int64_t kTileDim = 16;    // weight rows of a tile, and rows of x at most
inline constexpr int64_t kTileDepth = 32;  // elements of k in a tile
inline constexpr int64_t kTileBytes = 1024;

// Sums in tiles 0 to 3, weights in tile 4, x in tiles 5 to 7. columns: of a tile of x and of sums, 1, 2, 4, 8 or 16.
inline void configure_tiles(int64_t columns) {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  constexpr int kWeightTile = 4;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = static_cast<uint16_t>(i == kWeightTile ? 64 : 4 * columns);
    config.rows[i] = kTileDim;
  }
  _tile_loadconfig(&config);
}

// Sixteen rows of weights, tiles of k one after another.
struct WeightTiles {
  const char* data = nullptr;
  int64_t row_bytes = 0, tile_bytes = 0;
  const char* last =
      nullptr;  // where the last tile is elsewhere, with rows of 64 bytes: padded by zeros
};

// Transposes 16 x 16 elements of 32 bits.
inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xDD);
    }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xDD);
  }
}

// Writes kColumns rows of 16 elements of 32 bits as [16, kColumns]: sequences of rows are joined by twos, as many
// elements of the one and of the other in turn as there are rows in each.
template <int kColumns>
void put_interleaved(const __m512i (&row)[16], uint32_t* out) {
  alignas(64) static constexpr auto kOrders = [] {
    struct {
      int32_t from[3][2][16] = {};  // [log2 of the rows, half of what comes out, element]
    } orders;
    for (int level = 0; level < 3; ++level)
      for (int at = 0; at < 32; ++at) {
        const int rows = 1 << level, first = at / (2 * rows) * rows + at % rows;
        orders.from[level][at / 16][at % 16] = first + (at / rows % 2 == 0 ? 0 : 16);
      }
    return orders;
  }();
  __m512i joined[kColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kColumns; ++i) joined[i] = row[i];
#pragma GCC unroll 3
  for (int level = 0; 1 << level < kColumns; ++level) {
    const int rows = 1 << level;
    const __m512i lower = _mm512_load_si512(kOrders.from[level][0]);
    const __m512i upper = _mm512_load_si512(kOrders.from[level][1]);
    __m512i next[kColumns];
#pragma GCC unroll 4
    for (int i = 0; i < kColumns / 2; ++i) {
      const int a = i / rows * 2 * rows + i % rows, b = a + rows;
      const int to = i / rows * 2 * rows + i % rows * 2;
      next[to] = _mm512_permutex2var_epi32(joined[a], lower, joined[b]);
      next[to + 1] = _mm512_permutex2var_epi32(joined[a], upper, joined[b]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kColumns; ++i) joined[i] = next[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kColumns; ++i) _mm512_storeu_si512(out + 16 * i, joined[i]);
}

// Writes `columns` rows of 16 pairs as a tile of x: [16 pairs, columns] of 32 bits. Rows from `rows` on are zero.
inline void put_tile(__m512i (&row)[16], int64_t rows, int64_t columns, uint32_t* out) {
  for (int64_t i = rows; i < columns; ++i) row[i] = _mm512_setzero_si512();
  switch (columns) {
    case 1:
      return put_interleaved<1>(row, out);
    case 2:
      return put_interleaved<2>(row, out);
    case 4:
      return put_interleaved<4>(row, out);
    case 8:
      return put_interleaved<8>(row, out);
    default:
      transpose(row);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + 16 * i, row[i]);
  }
}

// Thirty-two floats as three bf16 values each, whose sum they are exactly: 8 bits of the significand in each. What is
// infinite has nothing behind it, so that it stays infinite.
struct SplitFloats {
  __m512i part[3];

  static SplitFloats of(__m512 low, __m512 high) {
    SplitFloats s;
    for (int i = 0; i < 3; ++i) {
      s.part[i] = upper_halves(low, high);
      low = rest(low);
      high = rest(high);
    }
    return s;
  }

 private:
  static __m512i upper_halves(__m512 low, __m512 high) {
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(low), odd, _mm512_castps_si512(high));
  }
  static __m512 rest(__m512 x) {
    const __m512 top = _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(int32_t(0xFFFF0000))));
    constexpr int kInfinite = 0x18;
    return _mm512_maskz_sub_ps(_knot_mask16(_mm512_fpclass_ps_mask(x, kInfinite)), x, top);
  }
};

}  // namespace
}  // namespace fathom::cpu
