// head_linear_quantize where a head's outputs are one block of 128 channels, as W_UV's are: products of up to eight
// tokens and, without another launch, their rows in FP8; with attention before it, which leaves the sums of its parts
// to this kernel. Bound by latency.
//
// A cluster of eight blocks has a head: 16 outputs a block, a line of the inner dimension a warp, as head_linear
// divides it. Of attention's parts a block adds up 64 columns, which all eight need. Blocks send each other the largest
// of their outputs, and each quantises its own.
//
// Grid: 8 * heads. Shared memory: 4 KB, sums of lines; with parts 66 KB.

#include "cuda/attention/choice.h"
#include "cuda/attention/ops.h"
#include "cuda/decode/ops.h"
#include "cuda/decode/parts_sum.cuh"
#include "cuda/decode/pieces.cuh"
#include "cuda/decode/query_product.cuh"
#include "cuda/linear/ops.h"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/head_linear.h"
#include "ops/mla.h"

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
constexpr int kTiles = kUvRows / 8, kPairs = kUvRows / 2;
static_assert(kPairs == kCluster);

struct HeadsOutShared {
  alignas(16) float parts[kUvLines][kMostQueryTokens][kUvRows];
  float amax[kMostQueryTokens][kCluster];
  uint64_t came;
};

struct HeadsOut : HeadThread {
  const HeadsOutParams& p;
  HeadsOutShared& s;
  Line weight[kTiles];

  __device__ __forceinline__ HeadsOut(const HeadsOutParams& params, HeadsOutShared& shared)
      : p(params), s(shared) {}

  // A cluster's arrival follows.
  __device__ __forceinline__ void init_barrier() {
    barrier_init(shared_address(&s.came), 1);
    barriers_are_ready();
    barrier_expect(shared_address(&s.came), p.tokens * kCluster * 4);
  }
  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      weight[tile].load(p.w_uv + head * p.w_uv_head +
                        (rank * kUvRows + tile * 8 + lane / 4) * (kLatent * 2) + warp * 128);
  }
  // x: of this lane's token.
  __device__ __forceinline__ void multiply(const char* x) {
    const bool has_token = lane / 4 < p.tokens;
    float2 out[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      out[tile] = multiply_bf16(weight[tile], has_token ? x + warp * 128 : nullptr);
    if (!has_token) return;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      *reinterpret_cast<float2*>(&s.parts[warp][lane / 4][tile * 8 + lane % 4 * 2]) = out[tile];
  }
  // REQUIRES: all have multiplied, all blocks of the cluster have begun.
  __device__ __forceinline__ void quantise() {
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
};

__global__ void __launch_bounds__(kOutThreads) heads_out_kernel(const HeadsOutParams p) {
  __shared__ HeadsOutShared s;
  HeadsOut block(p, s);
  let_next_start();
  if (threadIdx.x == 0) block.init_barrier();
  block.load_weights();
  cluster_arrive_relaxed();
  wait_for_previous();
  block.multiply(
      reinterpret_cast<const char*>(p.x + block.lane / 4 * p.x_stride + block.head * p.x_head));
  __syncthreads();
  cluster_wait();
  block.quantise();
}

struct PartsOutShared : HeadsOutShared {
  alignas(16) char x[kMostQueryTokens][kLatent * 2 + 64];  // from all blocks
  absorbed::PartsShared sums;
  uint64_t x_came;
};

// Of a token's warps; the last tokens' places are nobody's.
__device__ __forceinline__ absorbed::TokenWarps warps_of(int tokens, int warp) {
  const int warps = tokens <= 1 ? 8 : tokens <= 2 ? 4 : tokens <= 4 ? 2 : 1;
  return {.warps = warps, .first_warp = warp / warps * warps, .barrier = 1 + warp / warps};
}

__global__ void __launch_bounds__(kOutThreads)
    parts_out_kernel(const __grid_constant__ HeadsOutParams p,
                     const __grid_constant__ AbsorbedParams attention, int stream_blocks) {
  static_assert(kUvLines == 8);
  extern __shared__ __align__(128) char shared[];
  auto& s = *reinterpret_cast<PartsOutShared*>(shared);
  HeadsOut block(p, s);
  let_next_start();
  if (threadIdx.x == 0) {
    barrier_init(shared_address(&s.x_came), 1);
    block.init_barrier();
    barrier_expect(shared_address(&s.x_came), p.tokens * kLatent * 2);
  }
  block.load_weights();
  cluster_arrive_relaxed();
  const absorbed::TokenWarps warps = warps_of(p.tokens, block.warp);
  const int token = warps.first_warp / warps.warps;
  const absorbed::PartsSum sum{attention, warps, block.head, block.rank, s.sums};
  if (token < p.tokens) sum.init();
  absorbed::TokenParts parts;
  if (token < p.tokens) parts = absorbed::TokenParts::of(attention, stream_blocks, token);
  wait_for_previous();
  uint32_t two = 0;
  if (parts.count > 0) {
    two = sum.add(parts);
  } else if (token < p.tokens && !parts.is_padding && warps.thread() < 32) {
    two = reinterpret_cast<const uint32_t*>(p.x + token * p.x_stride + block.head * p.x_head +
                                            block.rank * absorbed::kSlice)[block.lane];
  }
  cluster_wait();
  if (token < p.tokens && warps.thread() < 32) {
#pragma unroll
    for (int to = 0; to < kCluster; ++to)
      send(s.x[token] + block.rank * absorbed::kSlice * 2 + block.lane * 4, &s.x_came, to, two);
  }
  __syncwarp();
  barrier_wait(shared_address(&s.x_came), 0);
  block.multiply(s.x[block.lane / 4]);
  __syncthreads();
  block.quantise();
}

HeadsOutParams params_of(const tensor::Tensor& x, const ops::Weight& w_uv,
                         const ops::Activation& out) {
  return {.x = x.as<Bf16>(),
          .x_stride = x.stride(0),
          .x_head = x.stride(1),
          .w_uv = static_cast<const char*>(w_uv.data.data()),
          .w_uv_head = w_uv.data.stride(0) * 2,
          .out = out.values.as<F8E4M3>(),
          .scale = out.scale.as<float>(),
          .tokens = static_cast<int>(x.dim(0)),
          .heads = static_cast<int>(x.dim(1))};
}

LaunchShape shape_of(const HeadsOutParams& p, int shared_bytes) {
  return {.grid = static_cast<unsigned>(p.heads * kCluster),
          .block = kOutThreads,
          .shared_bytes = shared_bytes,
          .cluster = kCluster};
}

bool takes(const tensor::Tensor& x, const ops::Weight& w_uv) {
  return x.dim(0) <= kMostQueryTokens && x.dim(1) <= kMostHeads && x.stride(0) % 8 == 0 &&
         x.stride(1) % 8 == 0 && is_aligned(x) && takes_heads(w_uv, kHead, kLatent);
}

}  // namespace
}  // namespace fathom::cuda::decode

namespace fathom::cuda {

bool takes_head_linear_quantize(const ops::HeadLinearQuantizeArgs& args,
                                const ops::Stream& stream) {
  if (takes_heads_quantize(args, stream)) return true;
  return decode::takes(args.x, args.weight) &&
         (args.attention == nullptr ||
          (takes_tuned_attention() && absorbed::can_leave_parts(*args.attention)));
}

void head_linear_quantize(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream) {
  if (args.x.dim(0) > decode::kMostQueryTokens) return heads_quantize(args, stream);
  const decode::HeadsOutParams p = decode::params_of(args.x, args.weight, args.out);
  if (p.tokens == 0) return;
  if (args.attention == nullptr)
    return launch(decode::heads_out_kernel, decode::shape_of(p, 0), stream, p);
  const absorbed::PartsLeft left = absorbed::leave_parts(*args.attention, stream);
  launch(decode::parts_out_kernel, decode::shape_of(p, sizeof(decode::PartsOutShared)), stream, p,
         left.params, left.stream_blocks);
}

int64_t head_linear_quantize_scratch(const ops::HeadLinearQuantizeArgs& args,
                                     const ops::Stream& stream) {
  return args.attention == nullptr ? 0 : mla_absorbed_scratch(*args.attention, stream);
}

}  // namespace fathom::cuda
