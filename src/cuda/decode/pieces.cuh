#pragma once
// What the blocks of this folder's clusters are made of: values sent from one to another, lines of weights in
// registers, and single rows. Internal to cuda/decode/.
//
//   send(&shared.q[i], &shared.q_came, rank, word);     // to that place of block `rank`, whose barrier gets 4 bytes
//   Line line;  line.load(row);                         // before the wait: weights
//   float2 two = multiply_bf16(line, lane < 4 ? token : nullptr);       // lanes 0 to 3 get two outputs
//   multiply_bf16(line, another, lane < 4 ? token : nullptr, d);        // sixteen rows by one instruction

#include "cuda/decode/params.cuh"
#include "cuda/elementwise/vector.cuh"
#include "cuda/linear/line.cuh"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda::decode {

inline constexpr int kUkRows = kLatent / kCluster, kUvRows = kHead / kCluster;
inline constexpr int kQueryRows = kQuery / kCluster, kQueryTiles = kQueryRows / 8;
inline constexpr int kNormWarps = kQueryIn / kVector / 32;
static_assert(kQueryRows % 8 == 0);

__device__ __forceinline__ void send(const void* to, const uint64_t* barrier, uint32_t rank,
                                     uint32_t value) {
  send_word(shared_address(to), shared_address(barrier), rank, value);
}
__device__ __forceinline__ void send(const float2* to, const uint64_t* barrier, uint32_t rank,
                                     float2 value) {
  send_two(shared_address(to), shared_address(barrier), rank, value);
}
__device__ __forceinline__ void send(const float* to, const uint64_t* barrier, uint32_t rank,
                                     const uint4& value) {
  send_four(shared_address(to), shared_address(barrier), rank, value);
}

// A thread of one of the eight blocks of a cluster that has a head.
struct HeadThread {
  int rank, head, warp, lane;

  __device__ __forceinline__ HeadThread()
      : rank(static_cast<int>(blockIdx.x) % kCluster),
        head(static_cast<int>(blockIdx.x) / kCluster),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}
};

// Eight rows of a line of a weight, in the registers of a warp: lane (g, t) has bytes 16t and 64 + 16t of row g.
struct Line {
  uint4 halves[2];

  __device__ __forceinline__ void load(const char* row) {
    const int t = threadIdx.x % 4;
    halves[0] = load_streamed(row + t * 16);
    halves[1] = load_streamed(row + 64 + t * 16);
  }
  __device__ __forceinline__ void get(int half, uint32_t (&w)[4]) const {
    w[0] = halves[half].x, w[1] = halves[half].y, w[2] = halves[half].z, w[3] = halves[half].w;
  }
};

// 16 bytes of the token that this lane has, which is a row of an operand; the second eight rows are of no token.
// token: of lane / 4; null: it has none.
__device__ __forceinline__ void token_words(const char* token, int stride, uint32_t (&x)[4]) {
  uint4 v = {0, 0, 0, 0};
  if (token != nullptr) v = *reinterpret_cast<const uint4*>(token + threadIdx.x % 4 * stride);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}
__device__ __forceinline__ const char* part_of(const char* token, int offset) {
  return token == nullptr ? nullptr : token + offset;
}

// As line.cuh does with weights and tokens in each other's places: a lane has two outputs of its token.
__device__ __forceinline__ float2 multiply_bf16(const Line& line, const char* token) {
  float d[4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t w[4], x[4];
    line.get(half, w);
    token_words(part_of(token, half * 64), 16, x);
#pragma unroll
    for (int i = 0; i < 4; i += 2) mma_bf16(d, {x[i], 0, x[i + 1], 0}, {w[i], w[i + 1]});
  }
  return {d[0], d[1]};
}

// Sixteen rows of two lines, as the rows of an operand, by tokens, as columns of the other one: a lane has outputs of
// row lane / 4 of both lines and of tokens lane % 4 * 2 and the one behind it. d: two of the first line, then two of
// the second.
__device__ __forceinline__ void multiply_bf16(const Line& first, const Line& second,
                                              const char* token, float (&d)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t v[4], w[4], x[4];
    first.get(half, v);
    second.get(half, w);
    token_words(part_of(token, half * 64), 16, x);
#pragma unroll
    for (int i = 0; i < 4; i += 2) mma_bf16(d, {v[i], w[i], v[i + 1], w[i + 1]}, {x[i], x[i + 1]});
  }
}

// The same of e4m3, as halves, by tokens of halves.
template <int kTiles>
__device__ __forceinline__ void multiply_f8(const Line (&lines)[kTiles][2], const char* token,
                                            float (&out)[kTiles][4]) {
  float d[kTiles][2][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int quarter = 0; quarter < 2; ++quarter) {
      uint32_t x[4];
      token_words(part_of(token, half * 128 + quarter * 16), 32, x);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t v[4], w[4];
        lines[tile][0].get(half, v);
        lines[tile][1].get(half, w);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t first = v[quarter * 2 + i], second = w[quarter * 2 + i];
          mma_f16(d[tile][half],
                  {low_halves(first), low_halves(second), high_halves(first), high_halves(second)},
                  {x[2 * i], x[2 * i + 1]});
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) out[tile][i] = __fadd_rn(d[tile][0][i], d[tile][1][i]);
}

// The sums of lines of q_b, each times both scales, in parts, as the warps of the product divide them.
struct LineSum {
  float total = 0.0f, part = 0.0f;

  // line: known when it is compiled.
  __device__ __forceinline__ void add(int line, float sum, float scale) {
    part = __fmaf_rn(sum, scale, part);
    const int mine = (line * kQueryParts + kQueryParts - 1) / kQueryLines;
    if (line + 1 < (mine + 1) * kQueryLines / kQueryParts) return;
    total = mine == 0 ? part : total + part;
    part = 0.0f;
  }
};

// A warp quantises the values of a head, four a lane (ops/quantize_fp8.h). at: of the head among those of all tokens.
__device__ __forceinline__ void quantise_head(const uint32_t* words, const DecodeParams& p,
                                              int64_t at) {
  const int lane = threadIdx.x % 32;
  const uint2 from = *reinterpret_cast<const uint2*>(words + lane * 2);
  const float v[4] = {bf16x2_low(from.x), bf16x2_high(from.x), bf16x2_low(from.y),
                      bf16x2_high(from.y)};
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) amax = fmaxf(amax, fabsf(v[i]));
  const float scale = fp8_scale(warp_max(amax));
  const uint32_t low = floats_to_e4m3x2(__fdiv_rn(v[0], scale), __fdiv_rn(v[1], scale));
  const uint32_t high = floats_to_e4m3x2(__fdiv_rn(v[2], scale), __fdiv_rn(v[3], scale));
  reinterpret_cast<uint32_t*>(p.out_f8 + at * kHead)[lane] = low | high << 16;
  if (lane == 0) p.out_scale[at] = scale;
}

// The norm's weight of eight channels of compressed queries as memory has it: nobody waits for it before it is used.
__device__ __forceinline__ Words<float> load_norm_weight(const QueryProduct& p, int begin) {
  const uint4* const from = reinterpret_cast<const uint4*>(static_cast<const char*>(p.q_norm) +
                                                           begin * (p.q_norm_is_f32 ? 4 : 2));
  Words<float> words{};
  words.at[0] = from[0];
  if (p.q_norm_is_f32) words.at[1] = from[1];
  return words;
}
__device__ __forceinline__ Vector norm_weight(const QueryProduct& p, const Words<float>& words) {
  return p.q_norm_is_f32 ? unpack(words) : unpack(Words<Bf16>{words.at[0]});
}

// Eight channels of a compressed query, whose squares add up to `squares`, as its product reads them.
__device__ __forceinline__ Vector normalised(Vector v, const Vector& weight, float squares,
                                             const QueryProduct& p) {
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(kQueryIn) + p.q_eps);
#pragma unroll
  for (int k = 0; k < kVector; ++k) v.at[k] = v.at[k] * factor * weight.at[k];
  round_to_bf16(v);
  return v;
}

// Row `row` of the sequence.
__device__ __forceinline__ const char* cache_row(const DecodeParams& p, int row) {
  const int block = row / p.block_tokens;
  const int64_t first = int64_t{p.block_tables[block]} * p.block_tokens;
  return p.append.cache.data + (first + row - block * p.block_tokens) * (kDim * 2);
}

}  // namespace fathom::cuda::decode
