#pragma once
// How the kernel of product.h fills its stages with a b of pairs of 4 bits: the copy engine reads ahead into stages of
// their own, and a warpgroup writes what it finds there as e4m3 or, of pairs with zero points, as bf16 into the ring,
// swizzled as the copy engine does.
//
//   feed_expanded<C>(p, shared);
//
// An e4m3 value of bits 0 to 15 is so many times 2^-9, so an integer's magnitude below its sign is the integer times
// 2^-9: exact, and whoever scales the sums multiplies with kPairScale. With zero points (q - zero point) * scale is
// rounded to bf16.
//
// Internal to product_kernel.cuh.

#include "cuda/gemm/product_feed.cuh"
#include "cuda/gemm/zero_point.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr float kPairScale = 512.0f;

// Integers of 4 bits in two's complement, a byte each whose high half is anything, as a sign and a magnitude.
__device__ __forceinline__ uint32_t signed_magnitudes(uint32_t bytes) {
  const uint32_t negative = bytes >> 3 & 0x01010101u;
  // 16 - n is the complement plus one; no byte carries.
  return ((bytes & 0x0f0f0f0fu) ^ negative * 0x8fu) + negative;
}
// Eight integers, in order.
__device__ __forceinline__ uint2 expand_pairs(uint32_t word) {
  const uint32_t even = signed_magnitudes(word), odd = signed_magnitudes(word >> 4);
  constexpr uint32_t kFirst = 0x5140, kLast = 0x7362;
  return {__byte_perm(even, odd, kFirst), __byte_perm(even, odd, kLast)};
}

// One thread: pairs of the block's tiles, kPairStages steps ahead.
template <class C>
class PairFeed {
 public:
  __device__ __forceinline__ PairFeed(const TiledParams& p, uint32_t shared)
      : shared_(shared),
        index_(static_cast<int>(blockIdx.x) / kClusterBlocks),
        pairs_(num_pairs<C>(p)) {}

  __device__ __forceinline__ void load_first(const TiledParams& p) {
    if (index_ < pairs_) find_row(p);
    for (int i = 0; i < kPairStages; ++i) load(p);
  }
  // The next stage, which nobody reads any more.
  __device__ __forceinline__ void load(const TiledParams& p) {
    if (index_ >= pairs_) return;
    const uint32_t full = pairs_full<C>(shared_, stage_);
    const uint32_t to = shared_ + C::kPairsAt + stage_ * C::kPairBytes;
    barrier_expect(full, C::kPairBytes);
    load_tile(&p.b, to, full, k_ * C::kPairRowBytes, row_);
    load_tile(&p.b, to + C::kPairBytes / 2, full, k_ * C::kPairRowBytes, row_ + p.half_distance);
    stage_ = stage_ + 1 == kPairStages ? 0 : stage_ + 1;
    if (++k_ < p.num_steps) return;
    k_ = 0;
    index_ += static_cast<int>(gridDim.x) / kClusterBlocks;
    if (index_ < pairs_) find_row(p);
  }

 private:
  __device__ __forceinline__ void find_row(const TiledParams& p) {
    const Tile tile = tile_at<C>(p, index_, static_cast<int>(cluster_rank()));
    row_ = tile.group * p.group_rows + tile.column;
  }

  uint32_t shared_;
  int index_, pairs_, row_ = 0, k_ = 0, stage_ = 0;
};

// A warpgroup: some threads a row of b, 32 channels each.
template <class C>
struct ExpandPlace {
  static constexpr int kPieces = C::kPairRowBytes / 16, kRowsApart = kWarpgroup / kPieces;
  static constexpr int kRows = C::kBlockN / kRowsApart;  // of a thread
  int row = static_cast<int>(threadIdx.x) / kPieces,
      piece = static_cast<int>(threadIdx.x) % kPieces;

  __device__ __forceinline__ static uint4 load(uint32_t pairs, int i) {
    return load_shared_16(pairs + (i * kWarpgroup + threadIdx.x) * 16);
  }
  // 16 bytes of the i-th row's part of a stage.
  __device__ __forceinline__ void store(uint32_t b, int i, int chunk, uint4 v) const {
    constexpr int kChunks = 8 / kPieces;
    const uint32_t at = b + (row + i * kRowsApart) * C::kRowBytes;
    store_shared_16(at + (kChunks * piece + chunk ^ row % 8) * 16, v);
  }
};

template <class C>
__device__ __forceinline__ void expand_signed(uint32_t pairs, uint32_t b) {
  const ExpandPlace<C> place;
#pragma unroll 4
  for (int i = 0; i < ExpandPlace<C>::kRows; ++i) {
    const uint4 words = place.load(pairs, i);
    const uint2 v[4] = {expand_pairs(words.x), expand_pairs(words.y), expand_pairs(words.z),
                        expand_pairs(words.w)};
    place.store(b, i, 0, {v[0].x, v[0].y, v[1].x, v[1].y});
    place.store(b, i, 1, {v[2].x, v[2].y, v[3].x, v[3].y});
  }
}

// The scales and zero points of this thread's rows, f16 beside f16. They are read a step ahead, and kept as they come:
// to put two together would wait for them.
template <class C>
class ZeroPointFeed {
 public:
  __device__ __forceinline__ void find(const TiledParams& p, const Tile& tile) {
    const ExpandPlace<C> place;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = place.row + i * ExpandPlace<C>::kRowsApart;
      rows_[i] = tile.group * p.group_rows +
                 min(tile.column + row % kHalf + row / kHalf * p.half_distance, p.group_rows - 1);
    }
  }
  __device__ __forceinline__ void load(const TiledParams& p, int k) {
    const int channel = k * C::kBlockK + ExpandPlace<C>().piece * 32;
    const int group = min(channel / p.group_channels, p.groups - 1);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint16_t* const from = p.zero_points + int64_t{rows_[i]} * 2 * p.groups + group;
      scales_[i] = __ldg(from);
      zeros_[i] = __ldg(from + p.groups);
    }
  }
  __device__ __forceinline__ uint32_t value(int i) const {
    return scales_[i] | static_cast<uint32_t>(zeros_[i]) << 16;
  }

 private:
  static constexpr int kRows = ExpandPlace<C>::kRows, kHalf = C::kBlockN / 2;
  int rows_[kRows];
  uint16_t scales_[kRows], zeros_[kRows];
};

template <class C>
__device__ __forceinline__ void expand_zero_points(uint32_t pairs, uint32_t b,
                                                   const ZeroPointFeed<C>& points) {
  const ExpandPlace<C> place;
#pragma unroll
  for (int i = 0; i < ExpandPlace<C>::kRows; ++i) {
    const uint4 words = place.load(pairs, i);
    const ZeroPoint point(points.value(i));
    place.store(b, i, 0, point.expanded(words.x));
    place.store(b, i, 1, point.expanded(words.y));
    place.store(b, i, 2, point.expanded(words.z));
    place.store(b, i, 3, point.expanded(words.w));
  }
}

// A warpgroup. Rows of a that are not gathered are one thread's, half of them for both blocks.
template <class C>
__device__ __forceinline__ void feed_expanded(const TiledParams& p, uint32_t shared) {
  constexpr int kBarrier = 3, kHalf = C::kBlockM / kClusterBlocks;
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(cluster_rank());
  Ring<C> ring(shared);
  RowFeed<C> rows;
  PairFeed<C> ahead(p, shared);
  if (thread == 0) ahead.load_first(p);
  int stage = 0;
  uint32_t phase = 0;
  for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>&) {
    ScaleFeed<C> scales;
    ZeroPointFeed<C> points;
    if constexpr (C::kGathers) rows.find(p, tile);
    if constexpr (!C::kHasScales) {
      points.find(p, tile);
      points.load(p, 0);
    } else if constexpr (C::kGathers) {
      scales.find(p, tile, thread, gathered_rows_of<C>(p, tile));
    } else {
      scales.find(p, tile, thread, rows_of(p, tile));
    }
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      if constexpr (C::kGathers) {
        rows.copy(p, ring, k);
      } else if (thread == 0) {
        barrier_expect(ring.full(), C::kABytes);
        load_tile_to(&p.a, ring.a() + rank * kHalf * C::kRowBytes, ring.full(), k * C::kBlockK,
                     tile.row + rank * kHalf, 0b11);
      }
      if constexpr (C::kHasScales) scales.copy(p, ring, thread, k);
      barrier_arrive_after_copies(ring.full());
      barrier_wait(pairs_full<C>(shared, stage), phase);
      const uint32_t pairs = shared + C::kPairsAt + stage * C::kPairBytes;
      if constexpr (C::kHasScales) {
        expand_signed<C>(pairs, ring.b());
      } else {
        expand_zero_points<C>(pairs, ring.b(), points);
        points.load(p, k + 1);
      }
      show_to_engines();
      barrier_arrive(ring.full());
      named_barrier_sync(kBarrier, kWarpgroup);  // nobody reads the pairs any more
      if (thread == 0) ahead.load(p);
      if (++stage == kPairStages) stage = 0, phase ^= 1;
    }
  });
}

}  // namespace fathom::cuda
