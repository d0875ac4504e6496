#pragma once
// The inner loop of products with pairs of 4 bits that have a scale and a zero point for each 32, 64 or 128 channels of
// a row (u4x2, ops/linear.h): a block, two tiles of 16 rows of a weight, 8 * NT rows of bf16 activations.
//
//   const PairRows rows{...};  const char* x[NT] = ...;              // where this lane's rows begin
//   multiply_pairs<NT>(rows, x, columns, sizes, shared);                      // then shared[token * kPairRows + row]
//
// Weights are the A of the matrix instruction and tokens its B. The warps of a block divide the inner dimension by its
// size alone and are added in order, so a row has the same bits in any company. Lane (g, t) reads 16 bytes of the rows
// g and g + 8 at a time, four lanes 128 channels; after a transposition among the four a word is eight channels of the
// j-th 32, which share a scale. q - zero point is exact in bf16; the sums of 32 channels are scaled and added in
// float32.

#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/device/convert.cuh"
#include "cuda/device/quad.cuh"
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
  __device__ int groups() const { return in / channels; }
};

// Rows g and g + 8 of both tiles, and their scales.
struct PairRows {
  const char* weight[kPairTiles][2];
  const uint16_t* scale[kPairTiles][2];
};

// What a lane loads of 128 channels. A word of scales has f16's of one 32 of them: the scale, then the zero point.
struct PairBlock {
  uint4 words[kPairTiles][2];
  uint32_t scales[kPairTiles][2];
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
    to.scales[i / 2][i % 2] = scale[group] | static_cast<uint32_t>(scale[sizes.groups() + group])
                                                 << 16;
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

// 128 + n as bf16, twice: the bits of 128 with n in its low ones.
inline constexpr uint32_t kBf16Of128 = 0x43004300u;
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
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t a[kPairTiles][2][4];
    float scale[kPairTiles][2];
#pragma unroll
    for (int i = 0; i < kPairTiles * 2; ++i) {
      const ScaleAndZero of = scale_of(block.scales[i / 2][i % 2], j);
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

// The block's sums to shared[token * kPairRows + row], of the first `columns` times 8 tokens; x is null where there is
// none. All threads take part.
template <int NT>
__device__ __forceinline__ void multiply_pairs(const PairRows& rows, const char* const (&x)[NT],
                                               int columns, const PairSizes& sizes, float* shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = (sizes.in + 127) / 128;
  const int begin = warp * blocks / kPairWarps, end = (warp + 1) * blocks / kPairWarps;
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
  for (int i = static_cast<int>(threadIdx.x); i < 8 * NT * kPairRows; i += kPairThreads) {
    float sum = shared[i];
    for (int other = 1; other < kPairWarps; ++other) sum += shared[other * 8 * NT * kPairRows + i];
    shared[i] = sum;
  }
  __syncthreads();
}

}  // namespace fathom::cuda
