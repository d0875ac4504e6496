#pragma once
// How the kernel of product.h fills its ring of stages.
//
//   feed<C>(p, shared);  feed_scales<C>(p, shared, thread);      // or, where rows are gathered,
//   feed_gathered<C>(p, shared);
//
// Internal to product_kernel.cuh.

#include "cuda/device/convert.cuh"
#include "cuda/gemm/product_tile.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

// One thread. Its half of the rows goes to both blocks, so a stage must be empty in both.
template <class C>
__device__ __forceinline__ void feed(const TiledParams& p, uint32_t shared) {
  const int rank = static_cast<int>(cluster_rank());
  constexpr int kHalf = C::kBlockM / kClusterBlocks;
  Ring<C> ring(shared);
  for_each_tile<C>(p, [&](const Tile& tile) {
    const int a_row = tile.row + rank * kHalf, b_row = tile.group * p.group_rows + tile.column;
    const CUtensorMap* const b = tile.is_second ? &p.second.b : &p.b;
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      barrier_expect(ring.full(), C::kStageBytes);
      load_tile_to(&p.a, ring.a() + rank * kHalf * C::kRowBytes, ring.full(), k * C::kBlockK, a_row,
                   0b11);
      load_tile(b, ring.b(), ring.full(), k * C::kBlockK, b_row);
      load_tile(b, ring.b() + C::kBBytes / 2, ring.full(), k * C::kBlockK, b_row + p.half_distance);
    }
  });
}

// Scales of one half of the tile's rows of b. A gated product has the gate's n rows first, then as many of up.
__device__ __forceinline__ const float* b_scales(const TiledParams& p, const Tile& tile, int half) {
  const int blocks = scale_blocks(tile.is_second ? p.second.rows : p.group_rows);
  const int block =
      min(tile.column / kScaleBlock + half * scale_blocks(p.half_distance), blocks - 1);
  const float* const first = tile.is_second ? p.second.b_scale : p.b_scale;
  return first + (static_cast<int64_t>(tile.group) * blocks + block) * p.num_steps;
}

// kScaleThreads: the scales of f8, by way of the same stages. From there a multiplying thread has them at once; from
// memory it would wait longer than for its products.
template <class C>
__device__ __forceinline__ void feed_scales(const TiledParams& p, uint32_t shared, int thread) {
  constexpr int kRows = C::kBlockM / kScaleThreads;
  Ring<C> ring(shared);
  for_each_tile<C>(p, [&](const Tile& tile) {
    int a[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      a[i] = min(tile.row + thread + i * kScaleThreads, p.rows - 1) * p.num_steps;
    const float* const b = b_scales(p, tile, thread);
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      const uint32_t to = ring.scales() + thread * 4;
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        copy_async_4(to + i * kScaleThreads * 4, p.a_scale + a[i] + k);
      if (thread < C::kWavesN) copy_async_4(to + C::kBlockM * 4, b + k);
      barrier_arrive_after_copies(ring.full());
    }
  });
}

// One thread: both halves of b's rows; of shared columns a block's half to both blocks.
template <class C>
__device__ __forceinline__ void feed_b(const TiledParams& p, const Ring<C>& ring, const Tile& tile,
                                       int rank, int k) {
  const int row = tile.group * p.group_rows + tile.column;
  barrier_expect(ring.full(), C::kBBytes);
  for (int half = 0; half < 2; ++half) {
    const uint32_t to = ring.b() + half * (C::kBBytes / 2);
    const int from = row + half * p.half_distance;
    if (!tile.shares_columns) {
      load_tile(&p.b, to, ring.full(), k * C::kBlockK, from);
    } else if (half == rank) {
      load_tile_to(&p.b, to, ring.full(), k * C::kBlockK, from, 0b11);
    }
  }
}

// A warpgroup: rows of a from anywhere, 16 bytes a thread and copy, swizzled as the copy engine does.
template <class C>
__device__ __forceinline__ void feed_gathered(const TiledParams& p, uint32_t shared) {
  constexpr int kPieces = C::kRowBytes / 16, kRowsApart = kWarpgroup / kPieces;
  constexpr int kRows = C::kBlockM / kRowsApart;
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(cluster_rank());
  const int first = thread / kPieces, piece = thread % kPieces;
  const uint32_t place = first * C::kRowBytes + (piece ^ first % 8) * 16;
  const auto row_of = [&](const Tile& tile, int row) {
    return row < tile.num_rows ? p.a_rows[tile.row + row] : -1;
  };
  Ring<C> ring(shared);
  for_each_tile<C>(p, [&](const Tile& tile) {
    int from[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) from[i] = row_of(tile, first + i * kRowsApart);
    const int scales_from = C::kIsF8 ? max(row_of(tile, thread), 0) * p.num_steps : 0;
    const float* const b = C::kIsF8 ? b_scales(p, tile, thread % C::kWavesN) : nullptr;
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      if (thread == 0) feed_b<C>(p, ring, tile, rank, k);
      const int at = k * kPieces + piece;
      const bool inside = at < p.row_pieces;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool valid = inside && from[i] >= 0;
        const int64_t offset = valid ? int64_t{from[i]} * p.a_stride_bytes + at * 16 : 0;
        copy_async_16(ring.a() + place + i * kRowsApart * C::kRowBytes, p.a_data + offset, valid);
      }
      if constexpr (C::kIsF8) {
        copy_async_4(ring.scales() + thread * 4, p.a_scale + scales_from + k);
        if (thread < C::kWavesN) copy_async_4(ring.scales() + (C::kBlockM + thread) * 4, b + k);
      }
      barrier_arrive_after_copies(ring.full());
    }
  });
}

}  // namespace fathom::cuda
