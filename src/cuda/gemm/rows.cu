#include "cuda/gemm/rows.h"

#include "cuda/device/convert.cuh"
#include "cuda/device/pdl.cuh"
#include "cuda/gemm/quotients.cuh"
#include "cuda/launch.cuh"
#include "tensor/scale_block.h"

// Bound by memory: each row is read once and written once per copy. A thread has 8 channels, 16 lanes one block of
// 128. No shared memory.

namespace fathom::cuda {
namespace {

using tensor::num_scale_blocks;

constexpr int kThreads = 256, kCombineThreads = 128, kChannels = 8, kLanes = 16;

struct Channels {
  float v[kChannels];
};

__device__ __forceinline__ Channels unpack(const uint4& words) {
  return {{bf16x2_low(words.x), bf16x2_high(words.x), bf16x2_low(words.y), bf16x2_high(words.y),
           bf16x2_low(words.z), bf16x2_high(words.z), bf16x2_low(words.w), bf16x2_high(words.w)}};
}
__device__ __forceinline__ uint4 pack(const Channels& c) {
  return {floats_to_bf16x2(c.v[0], c.v[1]), floats_to_bf16x2(c.v[2], c.v[3]),
          floats_to_bf16x2(c.v[4], c.v[5]), floats_to_bf16x2(c.v[6], c.v[7])};
}
__device__ __forceinline__ uint4 load_16(const Bf16* from) {
  return *reinterpret_cast<const uint4*>(from);
}
// What nobody reads again.
__device__ __forceinline__ uint4 load_once(const Bf16* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));
}

// 8 channels of a block whose other lanes call it too; returns the block's scale.
__device__ __forceinline__ float quantise(const Channels& c, uint2& q) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kChannels; ++i) most = fmaxf(most, fabsf(c.v[i]));
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
  const float scale = fp8_scale(most);
  Channels r = c;
  quotients(r.v, scale);
  uint16_t pairs[kChannels / 2];
#pragma unroll
  for (int i = 0; i < kChannels / 2; ++i) pairs[i] = floats_to_e4m3x2(r.v[2 * i], r.v[2 * i + 1]);
  q = {pairs[0] | static_cast<uint32_t>(pairs[1]) << 16, pairs[2] | static_cast<uint32_t>(pairs[3])
                                                                        << 16};
  return scale;
}

// The row of copy j, or -1.
__device__ __forceinline__ int64_t row_of(const RowArgs& p, int64_t token, int64_t j) {
  return p.row_of_pair == nullptr ? token : p.row_of_pair[token * p.copies + j];
}

constexpr int kTokens = 4;  // of a block that quantises: their loads are under way together

// Grid: (tokens / 4, dim / 2048). Whole blocks of lanes stay to the end: they meet in a maximum.
__global__ void __launch_bounds__(kThreads) quantise_kernel(const __grid_constant__ RowArgs p) {
  let_next_start();
  wait_for_previous();
  const int64_t first = int64_t{blockIdx.x} * kTokens, blocks = num_scale_blocks(p.dim);
  const int channel = (blockIdx.y * kThreads + threadIdx.x) * kChannels;
  uint4 words[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const bool inside = channel < p.dim && first + i < p.tokens;
    words[i] = inside ? load_16(p.x + (first + i) * p.x_stride + channel) : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    uint2 q;
    const float scale = quantise(unpack(words[i]), q);
    if (channel >= p.dim || first + i >= p.tokens) continue;
    for (int64_t j = 0; j < p.copies; ++j) {
      const int64_t row = row_of(p, first + i, j);
      if (row < 0) continue;
      *reinterpret_cast<uint2*>(p.q + row * p.dim + channel) = q;
      if (channel % tensor::kScaleBlock == 0)
        p.scale[row * blocks + channel / tensor::kScaleBlock] = scale;
    }
  }
}

// Grid: (tokens, row bytes / 4096).
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ RowArgs p) {
  let_next_start();
  wait_for_previous();
  const int64_t token = blockIdx.x, place = blockIdx.y * kThreads + threadIdx.x;
  const bool is_f8 = p.x_q != nullptr;
  const int64_t element_bytes = is_f8 ? 1 : 2, row_bytes = p.dim * element_bytes;
  const int64_t blocks = is_f8 ? num_scale_blocks(p.dim) : 0;
  const char* const from =
      is_f8 ? reinterpret_cast<const char*>(p.x_q) : reinterpret_cast<const char*>(p.x);
  char* const to = is_f8 ? reinterpret_cast<char*>(p.q) : reinterpret_cast<char*>(p.out);
  const bool inside = place * 16 < row_bytes, has_scale = place < blocks;
  const uint4 words =
      inside
          ? *reinterpret_cast<const uint4*>(from + token * p.x_stride * element_bytes + place * 16)
          : uint4{};
  const float scale = has_scale ? p.x_scale[token * blocks + place] : 0.0f;
  constexpr int kCopies = 8;  // whose rows are looked up together
  for (int64_t first = 0; first < p.copies; first += kCopies) {
    int64_t rows[kCopies];
#pragma unroll
    for (int j = 0; j < kCopies; ++j)
      rows[j] = first + j < p.copies ? row_of(p, token, first + j) : -1;
#pragma unroll
    for (int j = 0; j < kCopies; ++j) {
      if (rows[j] < 0) continue;
      if (inside) *reinterpret_cast<uint4*>(to + rows[j] * row_bytes + place * 16) = words;
      if (has_scale) p.scale[rows[j] * blocks + place] = scale;
    }
  }
}

// Grid: (tokens, dim / 1024). The loads of eight pairs are under way together.
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ CombineArgs p) {
  constexpr int kPairs = 8;
  let_next_start();
  wait_for_previous();
  const int64_t token = blockIdx.x;
  const int channel = (blockIdx.y * kCombineThreads + threadIdx.x) * kChannels;
  if (channel >= p.dim) return;
  Bf16* const out = p.out + token * p.out_stride + channel;
  const uint4 before = p.accumulate ? load_16(out) : uint4{};
  const int copies = static_cast<int>(p.copies);
  Channels sum{};
  for (int first = 0; first < copies; first += kPairs) {
    uint4 words[kPairs];
    float weights[kPairs];
    int rows[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t pair = token * copies + first + j;
      rows[j] = first + j < copies ? p.row_of_pair[pair] : -1;
      weights[j] = first + j < copies ? p.weights[pair] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      words[j] = rows[j] >= 0 ? load_once(p.y + int64_t{rows[j]} * p.dim + channel) : uint4{};
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const Channels y = unpack(words[j]);
#pragma unroll
      for (int i = 0; i < kChannels; ++i)
        sum.v[i] = rows[j] >= 0 ? sum.v[i] + weights[j] * y.v[i] : sum.v[i];
    }
  }
  if (p.accumulate) {
    const Channels old = unpack(before);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) sum.v[i] += old.v[i];
  }
  *reinterpret_cast<uint4*>(out) = pack(sum);
}
dim3 grid_of(int64_t tokens, int64_t dim) {
  return {static_cast<unsigned>(tokens), num_tiles(dim, kThreads * kChannels)};
}

}  // namespace

void copy_rows(const RowArgs& args, ops::Stream& stream) {
  const int64_t row_bytes = args.dim * (args.x_q != nullptr ? 1 : 2);
  const dim3 grid{static_cast<unsigned>(args.tokens), num_tiles(row_bytes, kThreads * 16)};
  launch(copy_kernel, {.grid = grid, .block = kThreads}, stream, args);
}

void quantise_rows(const RowArgs& args, ops::Stream& stream) {
  launch(quantise_kernel,
         {.grid = grid_of(num_tiles(args.tokens, kTokens), args.dim), .block = kThreads}, stream,
         args);
}

void combine_rows(const CombineArgs& args, ops::Stream& stream) {
  const dim3 grid{static_cast<unsigned>(args.tokens),
                  num_tiles(args.dim, kCombineThreads * kChannels)};
  launch(combine_kernel, {.grid = grid, .block = kCombineThreads}, stream, args);
}

}  // namespace fathom::cuda
