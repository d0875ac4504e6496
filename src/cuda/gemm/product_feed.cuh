#pragma once
// How the kernel of product.h fills its ring of stages.
//
//   feed<C>(p, shared);  feed_scales<C>(p, shared, thread);      // or, where rows are gathered,
//   feed_gathered<C>(p, shared);                                 // or, of pairs of 4 bits, product_expand.cuh
//
// Internal to product_kernel.cuh.

#include "cuda/device/convert.cuh"
#include "cuda/gemm/product_queue.cuh"
#include "cuda/gemm/product_tile.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

// One thread: the stage's rows of b.
template <class C>
__device__ __forceinline__ void load_b(const TiledParams& p, const Ring<C>& ring, const Tile& tile,
                                       int k) {
  const int row = tile.group * (tile.is_second ? p.second.group_rows : p.group_rows) + tile.column;
  const int at =
      (C::kHasMoreGroups && tile.is_second ? tile.group * p.second.group_k : 0) + k * C::kBlockK;
  const CUtensorMap* const b = tile.is_second ? &p.second.b : &p.b;
  if (C::kHasNarrow && tile.is_narrow) {
    barrier_expect(ring.full(), C::kABytes + C::kBBytes / 2);
    return load_tile(b, ring.b(), ring.full(), at, row);
  }
  barrier_expect(ring.full(), C::kStageBytes);
  load_tile(b, ring.b(), ring.full(), at, row);
  load_tile(b, ring.b() + C::kBBytes / 2, ring.full(), at, row + p.half_distance);
}

// Stages of the first tile whose b is asked for before the wait for the kernel before: none writes it, nor the tiles.
template <class C>
__device__ __forceinline__ int early_stages(const TiledParams& p) {
  return min(C::kStages, p.num_steps);
}
template <class C>
__device__ __forceinline__ void feed_early(const TiledParams& p, uint32_t shared) {
  const int index = static_cast<int>(blockIdx.x) / kClusterBlocks;
  if (index >= num_pairs<C>(p)) return;
  const Tile tile = tile_at<C>(p, index, static_cast<int>(cluster_rank()));
  Ring<C> ring(shared);
  for (int k = 0; k < early_stages<C>(p); ++k, ring.advance()) load_b(p, ring, tile, k);
}

// One thread. Its half of the rows goes to both blocks, so a stage must be empty in both. Rows of a narrow tile are its
// block's alone.
template <class C>
__device__ __forceinline__ void feed(const TiledParams& p, uint32_t shared) {
  const int rank = static_cast<int>(cluster_rank());
  constexpr int kHalf = C::kBlockM / kClusterBlocks;
  Ring<C> ring(shared);
  int early = early_stages<C>(p);
  for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>& queue) {
    for (int k = 0; k < p.num_steps; ++k, --early, ring.advance()) {
      if (early <= 0) {
        barrier_wait(ring.empty(), ring.phase ^ 1);
        load_b(p, ring, tile, k);
      }
      if (C::kHasNarrow && tile.is_narrow) {
        load_tile(&p.a, ring.a(), ring.full(), k * C::kBlockK, tile.row);
        load_tile(&p.a, ring.a() + kHalf * C::kRowBytes, ring.full(), k * C::kBlockK,
                  tile.row + kHalf);
      } else {
        load_tile_to(&p.a, ring.a() + rank * kHalf * C::kRowBytes, ring.full(), k * C::kBlockK,
                     tile.row + rank * kHalf, 0b11);
      }
      if (C::kHasQueue && rank == 0) queue.feed(p, k);
    }
  });
}

// The scales of a block of columns of one half of the tile's rows of b. A gated product has the gate's n rows first,
// then as many of up.
__device__ __forceinline__ const float* block_scales(const TiledParams& p, const Tile& tile,
                                                     int half) {
  const int blocks = scale_blocks(tile.is_second ? p.second.rows : p.group_rows);
  const int block =
      min(tile.column / kScaleBlock + half * scale_blocks(p.half_distance), blocks - 1);
  const float* const first = tile.is_second ? p.second.b_scale : p.b_scale;
  return first + (static_cast<int64_t>(tile.group) * blocks + block) * p.num_steps;
}
// The scales of one of the tile's rows of b, where each has its own.
template <class C>
__device__ __forceinline__ const float* column_scales(const TiledParams& p, const Tile& tile,
                                                      int column) {
  constexpr int kHalf = C::kBlockN / 2;
  const int rows = tile.is_second ? p.second.rows : p.group_rows;
  const int row = min(tile.column + column % kHalf + column / kHalf * p.half_distance, rows - 1);
  const float* const first = tile.is_second ? p.second.b_scale : p.b_scale;
  const int64_t index = static_cast<int64_t>(tile.group) * rows + row;
  return first + (C::kScalesEnd ? index : index * p.num_steps);
}

// What a thread copies of a tile's scales, by way of the same stages. From there a multiplying thread has them at once;
// from memory it would wait longer than for its products. Those of whole rows come with the last stage.
template <class C>
class ScaleFeed {
 public:
  // row_of(i): row i of the tile as a has it.
  template <class RowOf>
  __device__ __forceinline__ void find(const TiledParams& p, const Tile& tile, int thread,
                                       const RowOf& row_of) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      rows_[i] = row_of(thread + i * kThreads) * (C::kScalesEnd ? 1 : p.num_steps);
    columns_ = C::kColumnScales ? column_scales<C>(p, tile, thread)
                                : block_scales(p, tile, thread % C::kWavesN);
    if constexpr (C::kColumnScales && kColumns > 1) {
#pragma unroll
      for (int i = 1; i < kColumns; ++i)
        more_[i - 1] =
            static_cast<int>(column_scales<C>(p, tile, thread + i * kThreads) - columns_);
    }
  }
  __device__ __forceinline__ void copy(const TiledParams& p, const Ring<C>& ring, int thread,
                                       int k) const {
    if (C::kScalesEnd && k + 1 < p.num_steps) return;
    const int at = C::kScalesEnd ? 0 : k;
    const uint32_t to = ring.scales() + thread * 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) copy_async_4(to + i * kThreads * 4, p.a_scale + rows_[i] + at);
    if (C::kColumnScales || thread < C::kWavesN) copy_async_4(to + C::kBlockM * 4, columns_ + at);
    if constexpr (C::kColumnScales && kColumns > 1) {
#pragma unroll
      for (int i = 1; i < kColumns; ++i)
        copy_async_4(to + (C::kBlockM + i * kThreads) * 4, columns_ + more_[i - 1] + at);
    }
  }

 private:
  static constexpr int kThreads = C::kScaleFeeders;
  static constexpr int kRows = C::kBlockM / kThreads, kColumns = C::kBlockN / kThreads;
  int rows_[kRows];
  const float* columns_;
  int more_[kColumns > 1 ? kColumns - 1 : 1];  // from there to those of the thread's other columns
};

// Rows that are not gathered; those behind the last repeat it.
__device__ __forceinline__ auto rows_of(const TiledParams& p, const Tile& tile) {
  return [&p, first = tile.row](int row) { return min(first + row, p.rows - 1); };
}

// kScaleThreads.
template <class C>
__device__ __forceinline__ void feed_scales(const TiledParams& p, uint32_t shared, int thread) {
  Ring<C> ring(shared);
  for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>&) {
    ScaleFeed<C> scales;
    scales.find(p, tile, thread, rows_of(p, tile));
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      scales.copy(p, ring, thread, k);
      barrier_arrive_after_copies(ring.full());
    }
  });
}

// One thread: both halves of b's rows; of shared columns a block's half to both blocks.
template <class C>
__device__ __forceinline__ void feed_b(const TiledParams& p, const Ring<C>& ring, const Tile& tile,
                                       int rank, int k) {
  const bool is_second = C::kHasMoreGroups && tile.is_second;
  const CUtensorMap* const b = is_second ? &p.second.b : &p.b;
  const int row = tile.group * (is_second ? p.second.group_rows : p.group_rows) + tile.column;
  const int half_distance = is_second ? p.second.half_distance : p.half_distance;
  barrier_expect(ring.full(), C::kBBytes);
  for (int half = 0; half < 2; ++half) {
    const uint32_t to = ring.b() + half * (C::kBBytes / 2);
    const int from = row + half * half_distance;
    if (!tile.shares_columns) {
      load_tile(b, to, ring.full(), k * C::kBlockK, from);
    } else if (half == rank) {
      load_tile_to(b, to, ring.full(), k * C::kBlockK, from, 0b11);
    }
  }
}

// A warpgroup's part of rows of a from anywhere: 16 bytes a thread and copy, swizzled as the copy engine does.
template <class C>
class RowFeed {
 public:
  __device__ __forceinline__ RowFeed()
      : first_(static_cast<int>(threadIdx.x) / kPieces),
        piece_(static_cast<int>(threadIdx.x) % kPieces) {}

  __device__ __forceinline__ static int row_of(const TiledParams& p, const Tile& tile, int row) {
    return row < tile.num_rows ? p.a_rows[tile.row + row] : -1;
  }
  __device__ __forceinline__ void find(const TiledParams& p, const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) from_[i] = row_of(p, tile, first_ + i * kRowsApart);
  }
  __device__ __forceinline__ void copy(const TiledParams& p, const Ring<C>& ring, int k) const {
    const uint32_t place = first_ * C::kRowBytes + (piece_ ^ first_ % 8) * 16;
    const int at = k * kPieces + piece_;
    const bool inside = at < p.row_pieces;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool valid = inside && from_[i] >= 0;
      const int64_t offset = valid ? int64_t{from_[i]} * p.a_stride_bytes + at * 16 : 0;
      copy_async_16(ring.a() + place + i * kRowsApart * C::kRowBytes, p.a_data + offset, valid);
    }
  }

 private:
  static constexpr int kPieces = C::kRowBytes / 16, kRowsApart = kWarpgroup / kPieces;
  static constexpr int kRows = C::kBlockM / kRowsApart;
  int first_, piece_;
  int from_[kRows];
};

// Whose scales a row that is not there gets does not matter.
template <class C>
__device__ __forceinline__ auto gathered_rows_of(const TiledParams& p, const Tile& tile) {
  return [&p, &tile](int row) { return max(RowFeed<C>::row_of(p, tile, row), 0); };
}

// A warpgroup.
template <class C>
__device__ __forceinline__ void feed_gathered(const TiledParams& p, uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(cluster_rank());
  Ring<C> ring(shared);
  RowFeed<C> rows;
  for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>& queue) {
    rows.find(p, tile);
    ScaleFeed<C> scales;
    if constexpr (C::kHasScales) scales.find(p, tile, thread, gathered_rows_of<C>(p, tile));
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      if (thread == 0) feed_b<C>(p, ring, tile, rank, k);
      rows.copy(p, ring, k);
      if constexpr (C::kHasScales) scales.copy(p, ring, thread, k);
      barrier_arrive_after_copies(ring.full());
      if (C::kHasQueue && rank == 0 && thread == kWarpgroup - 32) queue.feed(p, k);
    }
  });
}

}  // namespace fathom::cuda
