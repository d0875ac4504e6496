// head_linear_quantize where a head's outputs are one block of 128 channels, as W_UV's are: products of up to eight
// tokens and, without another launch, their rows in FP8. Bound by latency.
//
// A cluster of eight blocks has a head: 16 outputs a block, a line of the inner dimension a warp, as head_linear
// divides it. Blocks send each other the largest of their outputs, and each quantises its own.
//
// Grid: 8 * heads. Shared memory: 4 KB, sums of lines.

#include "cuda/decode/ops.h"
#include "cuda/decode/pieces.cuh"
#include "cuda/decode/query_product.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/head_linear.h"

namespace fathom::cuda::decode {
namespace {

struct HeadsOutParams {
  const Bf16* x = nullptr;  // [tokens, heads, 512]
  int64_t x_stride = 0, x_head = 0;
  const char* w_uv = nullptr;  // bf16[heads, 128, 512]
  int64_t w_uv_head = 0;       // bytes
  F8E4M3* out = nullptr;       // [tokens, heads * 128]
  float* scale = nullptr;      // [tokens, heads]
  int tokens = 0, heads = 0;
};

constexpr int kOutThreads = kUvLines * 32;

struct HeadsOutShared {
  alignas(16) float parts[kUvLines][kMostQueryTokens][kUvRows];
  float amax[kMostQueryTokens][kCluster];
  uint64_t came;
};

__global__ void __launch_bounds__(kOutThreads) heads_out_kernel(const HeadsOutParams p) {
  __shared__ HeadsOutShared s;
  constexpr int kTiles = kUvRows / 8, kPairs = kUvRows / 2;
  static_assert(kPairs == kCluster);
  const int rank = static_cast<int>(blockIdx.x) % kCluster, head = blockIdx.x / kCluster;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  let_next_start();
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&s.came), 1);
    barriers_are_ready();
    barrier_expect(shared_address(&s.came), p.tokens * kCluster * 4);
  }
  Line weight[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    weight[tile].load(p.w_uv + head * p.w_uv_head +
                      (rank * kUvRows + tile * 8 + lane / 4) * (kLatent * 2) + warp * 128);
  cluster_arrive_relaxed();
  wait_for_previous();
  const Bf16* const x = p.x + lane / 4 * p.x_stride + head * p.x_head;
  const bool has_token = lane / 4 < p.tokens;
  float2 out[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    out[tile] = multiply_bf16(weight[tile],
                              has_token ? reinterpret_cast<const char*>(x) + warp * 128 : nullptr);
  if (has_token) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      *reinterpret_cast<float2*>(&s.parts[warp][lane / 4][tile * 8 + lane % 4 * 2]) = out[tile];
  }
  __syncthreads();
  cluster_wait();
  if (threadIdx.x >= kMostQueryTokens * kPairs) return;
  const int token = threadIdx.x / kPairs, pair = threadIdx.x % kPairs;
  float2 sum = *reinterpret_cast<const float2*>(&s.parts[0][token][pair * 2]);
#pragma unroll
  for (int line = 1; line < kUvLines; ++line) {
    const float2 more = *reinterpret_cast<const float2*>(&s.parts[line][token][pair * 2]);
    sum.x += more.x, sum.y += more.y;
  }
  const uint32_t both = floats_to_bf16x2(sum.x, sum.y);
  float amax = fmaxf(fabsf(bf16x2_low(both)), fabsf(bf16x2_high(both)));
#pragma unroll
  for (int lanes = 1; lanes < kPairs; lanes *= 2)
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, lanes));
  if (token < p.tokens)
    send(&s.amax[token][rank], &s.came, static_cast<uint32_t>(pair), __float_as_uint(amax));
  __syncwarp();
  barrier_wait(shared_address(&s.came), 0);
  if (token >= p.tokens) return;
#pragma unroll
  for (int i = 0; i < kCluster; ++i) amax = fmaxf(amax, s.amax[token][i]);
  const float scale = fp8_scale(amax);
  const int64_t at = int64_t{token} * p.heads + head;
  reinterpret_cast<uint16_t*>(p.out + at * kHead + rank * kUvRows)[pair] =
      floats_to_e4m3x2(__fdiv_rn(bf16x2_low(both), scale), __fdiv_rn(bf16x2_high(both), scale));
  if (rank == 0 && pair == 0) p.scale[at] = scale;
}

}  // namespace
}  // namespace fathom::cuda::decode

namespace fathom::cuda {

bool takes_head_linear_quantize(const ops::HeadLinearQuantizeArgs& args, const ops::Stream&) {
  return args.x.dim(0) <= decode::kMostQueryTokens && args.x.dim(1) <= decode::kMostHeads &&
         args.x.stride(0) % 8 == 0 && args.x.stride(1) % 8 == 0 && decode::is_aligned(args.x) &&
         decode::takes_heads(args.weight, decode::kHead, decode::kLatent);
}

void head_linear_quantize(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream) {
  const tensor::Tensor& weight = args.weight.data;
  const decode::HeadsOutParams p{.x = args.x.as<Bf16>(),
                                 .x_stride = args.x.stride(0),
                                 .x_head = args.x.stride(1),
                                 .w_uv = static_cast<const char*>(weight.data()),
                                 .w_uv_head = weight.stride(0) * 2,
                                 .out = args.out.values.as<F8E4M3>(),
                                 .scale = args.out.scale.as<float>(),
                                 .tokens = static_cast<int>(args.x.dim(0)),
                                 .heads = static_cast<int>(args.x.dim(1))};
  if (p.tokens == 0) return;
  launch(decode::heads_out_kernel,
         {.grid = static_cast<unsigned>(p.heads * decode::kCluster),
          .block = decode::kOutThreads,
          .cluster = decode::kCluster},
         stream, p);
}

}  // namespace fathom::cuda
