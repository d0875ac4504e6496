#pragma once
// The inner loop of products with pairs of 4 bits that have a scale and a zero point for each 32, 64 or 128 channels of
// a row (u4x2, ops/linear.h): a warp, two tiles of 16 rows of a weight, 8 * NT rows of bf16 activations.
//
//   const PairRows rows{...};  const char* x[NT] = ...;              // where this lane's rows begin
//   multiply_pairs<NT>(rows, x, columns, sizes, shared);
//   pair_sums<NT>(shared, sizes, tile)[token * kPairRows + row]      // of the block's tiles of kPairRows rows
//
// Weights are the A of the matrix instruction and tokens its B. The warps of a block divide the inner dimension, or
// where that is short some of them do and the others have other rows. How is by its size alone, and what they have is
// added in order, so a row has the same bits in any company. Lane (g, t) reads 16 bytes of the rows
// g and g + 8 at a time, four lanes 128 channels; after a transposition among the four a word is eight channels of the
// j-th 32, which share a scale. q - zero point is exact in bf16; the sums of 32 channels are scaled and added in
// float32.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/convert.cuh"
#include "cuda/device/quad.cuh"
#include "cuda/gemm/zero_point.cuh"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/copy.cuh"

namespace fathom::cuda {

inline constexpr int kPairWarps = 8, kPairThreads = kPairWarps * 32, kPairTiles = 2;
inline constexpr int kPairRows = 16 * kPairTiles;
// Floats of shared memory: the warps' sums [warp, token, row].
template <int NT>
inline constexpr int kPairSums = kPairWarps * 8 * NT* kPairRows;

struct PairSizes {
  int in = 0, channels = 0;   // of a row; of a scale
  bool x_is_aligned = false;  // rows of activations can be read in pieces of 16 bytes
  int warps = kPairWarps;     // that divide a row
  // Of kPairRows rows, of a block.
  __host__ __device__ int tiles() const { return kPairWarps / warps; }
  __device__ int groups() const { return in / channels; }
};

// Each has two times 128 channels, where there are so many.
inline int warps_of_row(int in) {
  int warps = kPairWarps;
  while (warps > 1 && in < warps * 256) warps /= 2;
  return warps;
}

// The tile of this warp.
__device__ __forceinline__ int tile_of_warp(const PairSizes& sizes) {
  return static_cast<int>(threadIdx.x) / 32 / sizes.warps;
}
template <int NT>
__device__ __forceinline__ float* pair_sums(float* shared, const PairSizes& sizes, int tile) {
  return shared + tile * sizes.warps * (8 * NT * kPairRows);
}

// Rows g and g + 8 of both tiles of 16, and their scales.
struct PairRows {
  const char* weight[kPairTiles][2];
  const uint16_t* scale[kPairTiles][2];
};

// What a lane loads of 128 channels: scale and zero point, f16, are of one 32 of them. They are kept as they come: to
// put two together would wait for them.
struct PairBlock {
  uint4 words[kPairTiles][2];
  uint16_t scale[kPairTiles][2], zero[kPairTiles][2];
};
__device__ __forceinline__ void load_pairs(const PairRows& rows, const PairSizes& sizes, int block,
                                           PairBlock& to) {
  const int t = static_cast<int>(threadIdx.x) % 4, at = block * 64 + t * 16;
  const bool inside = at < sizes.in / 2;
  const int group = min(block * 128 + t * 32, sizes.in - 32) / sizes.channels;
#pragma unroll
  for (int i = 0; i < kPairTiles * 2; ++i) {
    const uint16_t* const scale = rows.scale[i / 2][i % 2];
    to.words[i / 2][i % 2] = inside ? load_streamed(rows.weight[i / 2][i % 2] + at) : uint4{};
    to.scale[i / 2][i % 2] = scale[group];
    to.zero[i / 2][i % 2] = scale[sizes.groups() + group];
  }
}

// Eight channels, zeros where there are none.
__device__ __forceinline__ uint4 load_channels(const char* x, const PairSizes& sizes, int channel) {
  if (x == nullptr || channel >= sizes.in) return {};
  const char* const from = x + channel * 2;
  if (sizes.x_is_aligned) return *reinterpret_cast<const uint4*>(from);
  const uint16_t* const values = reinterpret_cast<const uint16_t*>(from);
  const auto pair = [&](int i) { return values[i] | static_cast<uint32_t>(values[i + 1]) << 16; };
  return {pair(0), pair(2), pair(4), pair(6)};
}

// Channels (i, i + 4) of a word of eight, less the zero point: `zero` is 128 + it.
__device__ __forceinline__ uint32_t pair_values(uint32_t word, int i, uint32_t zero) {
  const uint32_t values = (word >> (4 * i) & 0x000f000fu) | kBf16Of128;
  uint32_t out;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(values), "r"(zero));
  return out;
}

struct ScaleAndZero {
  float scale;
  uint32_t zero;  // 128 + it, twice
};
// Of the j-th 32 channels, which lane j of the four has loaded.
__device__ __forceinline__ ScaleAndZero scale_of(uint32_t scales, int j) {
  const uint32_t mine = __shfl_sync(0xffffffffu, scales, (threadIdx.x % 32 & ~3u) + j);
  const __half2 both = *reinterpret_cast<const __half2*>(&mine);
  const uint32_t zero = __half2uint_rn(__high2half(both));
  return {.scale = __low2float(both), .zero = kBf16Of128 + zero * 0x00010001u};
}

template <int NT>
__device__ __forceinline__ void multiply_block(PairBlock& block, const char* const (&x)[NT],
                                               int columns, const PairSizes& sizes,
                                               int first_channel,
                                               float (&sums)[kPairTiles][NT][4]) {
  uint32_t words[kPairTiles][2][4];
#pragma unroll
  for (int i = 0; i < kPairTiles * 2; ++i) {
    const uint4& from = block.words[i / 2][i % 2];
    uint32_t(&to)[4] = words[i / 2][i % 2];
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
    transpose_quad(to);
  }
  uint32_t scales[kPairTiles * 2];
#pragma unroll
  for (int i = 0; i < kPairTiles * 2; ++i)
    scales[i] = block.scale[i / 2][i % 2] | static_cast<uint32_t>(block.zero[i / 2][i % 2]) << 16;
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t a[kPairTiles][2][4];
    float scale[kPairTiles][2];
#pragma unroll
    for (int i = 0; i < kPairTiles * 2; ++i) {
      const ScaleAndZero of = scale_of(scales[i], j);
      scale[i / 2][i % 2] = of.scale;
#pragma unroll
      for (int k = 0; k < 4; ++k)
        a[i / 2][k / 2][k % 2 * 2 + i % 2] = pair_values(words[i / 2][i % 2][j], k, of.zero);
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      if (n >= columns) break;
      const uint4 v = load_channels(x[n], sizes, first_channel + j * 32 + t * 8);
      constexpr uint32_t kLow = 0x5410, kHigh = 0x7632;
      const uint32_t b[2][2] = {{__byte_perm(v.x, v.z, kLow), __byte_perm(v.x, v.z, kHigh)},
                                {__byte_perm(v.y, v.w, kLow), __byte_perm(v.y, v.w, kHigh)}};
#pragma unroll
      for (int tile = 0; tile < kPairTiles; ++tile) {
        float products[4] = {};
        mma_bf16(products, a[tile][0], b[0]);
        mma_bf16(products, a[tile][1], b[1]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[tile][n][i] = __fmaf_rn(products[i], scale[tile][i / 2], sums[tile][n][i]);
      }
    }
  }
}

// The block's sums to pair_sums(), of the first `columns` times 8 tokens; x is null where there is none. All threads
// take part.
template <int NT>
__device__ __forceinline__ void multiply_pairs(const PairRows& rows, const char* const (&x)[NT],
                                               int columns, const PairSizes& sizes, float* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = (sizes.in + 127) / 128;
  const int part = warp % sizes.warps;
  const int begin = part * blocks / sizes.warps, end = (part + 1) * blocks / sizes.warps;
  float sums[kPairTiles][NT][4] = {};
  PairBlock next;
  if (begin < end) load_pairs(rows, sizes, begin, next);
  for (int block = begin; block < end; ++block) {
    PairBlock now = next;
    if (block + 1 < end) load_pairs(rows, sizes, block + 1, next);
    multiply_block<NT>(now, x, columns, sizes, block * 128, sums);
  }
  float* const mine = shared + warp * (8 * NT * kPairRows);
#pragma unroll
  for (int i = 0; i < kPairTiles * NT * 4; ++i) {
    const int tile = i / (NT * 4), n = i / 4 % NT, at = i % 4;
    mine[(n * 8 + lane % 4 * 2 + at % 2) * kPairRows + tile * 16 + lane / 4 + at / 2 * 8] =
        sums[tile][n][at];
  }
  __syncthreads();
  constexpr int kSums = 8 * NT * kPairRows;
  for (int i = static_cast<int>(threadIdx.x); i < sizes.tiles() * kSums; i += kPairThreads) {
    float* const sums = pair_sums<NT>(shared, sizes, i / kSums) + i % kSums;
    float sum = sums[0];
    for (int other = 1; other < sizes.warps; ++other) sum += sums[other * kSums];
    sums[0] = sum;
  }
  __syncthreads();
}

}  // namespace fathom::cuda
