#pragma once
// Rows of the cache in f8 for wide absorbed attention (mla_absorbed_wide.cu), which become bf16 on the way. Two warps
// bring a tile, 32 of its rows each.
//
//   F8Rows rows(p, memory, shared, tile, warp);
//   rows.load_tile(turn, kv_row, exponents_of(rows.scales_of(kv_row)));     // all lanes
//
// Every thread of the two warps arrives once at the barrier of a panel; who reads it publishes it to the products.
// Internal to cuda/attention/.

#include "cuda/attention/absorbed_wide_tile.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kTileWarps = 2, kTileThreads = 32 * kTileWarps;  // that bring a tile
inline constexpr int kWarpRows = kWideTile / kTileWarps;

// The exponents of a row's four scales, a byte each: they are powers of two.
__device__ __forceinline__ uint32_t exponents_of(const uint4& scales) {
  return scales.x >> 23 | scales.y >> 23 << 8 | scales.z >> 23 << 16 | scales.w >> 23 << 24;
}

// The lanes of one of the two warps that bring tile `tile`. Eight lanes copy 128 bytes of a row: two panels of it.
//
// Values lie in the second one of their two panels until they are converted: copies under way need no registers.
class F8Rows {
 public:
  __device__ F8Rows(const WideParams& p, char* memory, uint32_t shared, int tile, int warp)
      : cache_(p.absorbed.cache),
        memory_(memory),
        shared_(shared),
        tile_(tile),
        first_row_(warp * kWarpRows) {}

  __device__ __forceinline__ uint4 scales_of(int32_t kv_row) const {
    return *reinterpret_cast<const uint4*>(cache_.row(kv_row) + cache_.scale_offset);
  }

  // The tile's panels in the order in which they are read; `turn` tiles came before it. Lane i has the row of the cache
  // that is the warp's row i, and its exponents.
  __device__ __forceinline__ void load_tile(uint32_t turn, int32_t kv_row,
                                            uint32_t exponents) const {
    wait_empty(kRopePiece, turn);
    copy(kRopePanel, cache_.rope_offset, kv_row);
    barrier_arrive_after_copies(WideShared::full(shared_, tile_, kRopePanel));
    // The first warpgroup is done with the left half of its tile first, the second one with the right half. Not
    // unrolled: addresses of both halves have no room in a producer's registers.
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const int half = i ^ tile_;
      wait_empty(kLeftPiece + half, turn);
      load_half(half * kHalfPanels, kv_row, exponents);
    }
  }

 private:
  static constexpr int kRowsOfCopy = 4;  // side by side

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }

  __device__ __forceinline__ void wait_empty(int piece, uint32_t turn) const {
    barrier_wait(WideShared::empty(shared_, tile_, piece), (turn & 1) ^ 1);
  }

  __device__ __forceinline__ void load_half(int first, int32_t kv_row, uint32_t exponents) const {
    for (int panel = first; panel < first + kHalfPanels; panel += 2) {
      copy(panel + 1, panel * 64, kv_row);
      commit_copies();
    }
    wait_copies<1>();
    convert(first, exponents);
    wait_copies<0>();
    convert(first + 2, exponents);
  }

  // Where copy i of a lane lies behind the first one: four rows further on a vector's place differs in its highest bit.
  __device__ __forceinline__ static uint32_t behind(uint32_t first, int i) {
    return (first + i * kRowsOfCopy * kPanelRowBytes) ^ i % 2 * 64;
  }

  // 128 bytes of each row, from `from` on, to where the panel has them.
  __device__ __forceinline__ void copy(int panel, int from, int32_t kv_row) const {
    const int vector = lane() % 8;
    const uint32_t to = WideShared::panel(shared_, tile_, panel) + first_row_ * kPanelRowBytes +
                        panel_offset(lane() / 8, vector);
#pragma unroll
    for (int i = 0; i < kWarpRows / kRowsOfCopy; ++i) {
      const int32_t row = __shfl_sync(0xffffffffu, kv_row, lane() / 8 + i * kRowsOfCopy);
      copy_async_16(behind(to, i), cache_.row(row) + from + vector * 16, true);
    }
  }

  // Panels `panel` and the next one, of f8 values that lie in the next one. A lane converts what it has copied.
  __device__ __forceinline__ void convert(int panel, uint32_t exponents) const {
    constexpr int kTogether = 4;
    const int vector = lane() % 8;
    char* const rows = memory_ + WideShared::kTiles + (tile_ * kPanels + panel) * kPanelBytes +
                       first_row_ * kPanelRowBytes;
    const uint32_t from = kPanelBytes + panel_offset(lane() / 8, vector);
    const uint32_t to = vector / 4 * kPanelBytes + panel_offset(lane() / 8, vector % 4 * 2);
#pragma unroll 1
    for (int begin = 0; begin < kWarpRows / kRowsOfCopy; begin += kTogether) {
      uint4 raw[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        raw[i] = *reinterpret_cast<const uint4*>(rows + behind(from, begin + i));
      __syncwarp();  // the other lanes of these rows have read theirs
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = lane() / 8 + (begin + i) * kRowsOfCopy;
        const uint32_t scales = __shfl_sync(0xffffffffu, exponents, row);
        uint4 vectors[2];
        dequantise(raw[i], __uint_as_float((scales >> (panel / 2 * 8) & 0xffu) << 23), vectors);
        const uint32_t place = behind(to, begin + i);
#pragma unroll
        for (int j = 0; j < 2; ++j)  // neighbours differ in the lowest bit of their places
          *reinterpret_cast<uint4*>(rows + (place ^ j * 16)) = vectors[j];
      }
    }
    barrier_arrive(WideShared::full(shared_, tile_, panel));
    barrier_arrive(WideShared::full(shared_, tile_, panel + 1));
  }

  const KvLayout& cache_;
  char* const memory_;
  const uint32_t shared_;
  const int tile_, first_row_;
};

}  // namespace fathom::cuda::absorbed
