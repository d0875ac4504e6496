// head_linear_quantize (ops/head_linear.h) of more tokens than cuda/decode/ takes: W_UV, whose heads have 128 outputs
// and so one scale each. Bound by latency.
//
// A block has a head and a tile of tokens. One thread feeds a ring of stages, each a line (64 channels) of the head's
// weights and of the tokens; the first weights come before the wait. Two warpgroups multiply, each 64 outputs by all
// tokens of the tile. Then a warp takes a token at a time from shared memory, rounds its outputs to bf16 and quantises
// them. Order of sums: k rises, as in batch_product.cuh, whose bits these are.
//
// Grid: x = tiles of tokens, y = heads. Shared memory: stages, 20 KB of 32 tokens and 24 KB of 64, at the end the sums
// [token, output] in their place; two blocks fit on a multiprocessor.

#include "cuda/device/convert.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/linear/batch_product.h"
#include "cuda/linear/ops.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stage_ring.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/runtime/stream.cuh"
#include "ops/head_linear.h"

namespace fathom::cuda {
namespace {

constexpr int kOutputs = kScaleBlock, kLineChannels = kLineBytes / 2;
constexpr int kMultiplyingThreads = 256, kHeadsThreads = kMultiplyingThreads + 32;
constexpr int kRoomBytes = (112 << 10) - 1024;
constexpr int kSumStride = kOutputs + 4;  // keeps the banks apart

struct HeadsParams {
  CUtensorMap x, weight;  // boxes of a line of a tile's tokens, and of a head's outputs
  uint8_t* q;             // e4m3[tokens, heads * 128]
  float* scale;           // f32[tokens, heads]
  int tokens, heads, lines;
  int box_tokens;           // of a box of x
  int x_head, weight_head;  // columns of x and rows of the weight from one head to the next
};

template <int kTokensT>
struct HeadsShared {
  static constexpr int kTokens = kTokensT, kSums = kTokens / 2;  // of a block; of a thread
  struct Stage {
    char weights[kOutputs][kLineBytes];
    char tokens[kTokens][kLineBytes];
  };
  static constexpr int kStages = kRoomBytes / static_cast<int>(sizeof(Stage) + 16);
  Stage stages[kStages];
  uint64_t full[kStages], empty[kStages];
  static_assert(kTokens * kSumStride * 4 <= sizeof(stages));
};

template <class Shared>
struct HeadsProduct {
  using Ring = StageRing<Shared>;

  const HeadsParams& p;
  Shared& shared;
  int head = static_cast<int>(blockIdx.y);
  int first_token = static_cast<int>(blockIdx.x) * Shared::kTokens;

  // One thread feeds.
  __device__ __forceinline__ void load_weights(const Ring& ring, int line) const {
    barrier_expect(ring.full(), sizeof((*ring).weights) + p.box_tokens * kLineBytes);
    load_tile(&p.weight, shared_address((*ring).weights), ring.full(), line * kLineChannels,
              head * p.weight_head);
  }
  __device__ __forceinline__ void load_tokens(const Ring& ring, int line) const {
    load_tile(&p.x, shared_address((*ring).tokens), ring.full(),
              head * p.x_head + line * kLineChannels, first_token);
  }
  __device__ __forceinline__ void begin() const {
    for (int stage = 0; stage < Shared::kStages; ++stage) {
      barrier_init(shared_address(&shared.full[stage]), 1);
      barrier_init(shared_address(&shared.empty[stage]), kMultiplyingThreads / 32);
    }
    barriers_are_ready();
    Ring ring{shared};
    for (int line = 0; line < min(p.lines, Shared::kStages); ++line, ring.advance())
      load_weights(ring, line);
  }
  __device__ __forceinline__ void feed() const {
    Ring ring{shared};
    for (int line = 0; line < p.lines; ++line, ring.advance()) {
      if (line >= Shared::kStages) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        load_weights(ring, line);
      }
      load_tokens(ring, line);
    }
  }

  // A line's products run while the next line's are started.
  __device__ __forceinline__ void multiply(float (&sums)[Shared::kSums]) const {
    const uint32_t first_row = threadIdx.x / 128 * 64;
    Ring ring{shared}, before{shared};
    for (int line = 0; line < p.lines; ++line, ring.advance()) {
      barrier_wait(ring.full(), ring.parity);
      const uint32_t a = descriptor_word(shared_address((*ring).weights[first_row]));
      const uint32_t b = descriptor_word(shared_address((*ring).tokens));
      mma_begin(sums);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), line > 0 || i > 0,
            Bf16{});
      mma_commit();
      mma_wait<1>(sums);
      if (line == 0) continue;
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(before.empty());
      before.advance();
    }
    mma_wait<0>(sums);
  }
  // REQUIRES: all have multiplied.
  __device__ __forceinline__ void keep(const float (&sums)[Shared::kSums]) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    float* const kept = reinterpret_cast<float*>(&shared) + row;
#pragma unroll
    for (int i = 0; i < Shared::kSums; ++i)
      kept[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumStride + i % 4 / 2 * 8] = sums[i];
  }
  // REQUIRES: all have kept their sums.
  __device__ __forceinline__ void quantise() const {
    const int lane = threadIdx.x % 32, num_tokens = min(p.tokens - first_token, Shared::kTokens);
    for (int token = static_cast<int>(threadIdx.x) / 32; token < num_tokens;
         token += kMultiplyingThreads / 32) {
      const float4 sum = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(&shared) +
                                                          token * kSumStride + lane * 4);
      const uint32_t low = floats_to_bf16x2(sum.x, sum.y), high = floats_to_bf16x2(sum.z, sum.w);
      const float4 v{bf16x2_low(low), bf16x2_high(low), bf16x2_low(high), bf16x2_high(high)};
      const float amax = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
      const float scale = fp8_scale(warp_max(amax));
      const int64_t at = int64_t{first_token + token} * p.heads + head;
      const uint32_t first = floats_to_e4m3x2(__fdiv_rn(v.x, scale), __fdiv_rn(v.y, scale));
      const uint32_t last = floats_to_e4m3x2(__fdiv_rn(v.z, scale), __fdiv_rn(v.w, scale));
      reinterpret_cast<uint32_t*>(p.q + at * kOutputs)[lane] = first | last << 16;
      if (lane == 0) p.scale[at] = scale;
    }
  }
};

template <class Shared>
__global__ void __launch_bounds__(kHeadsThreads, 2)
    heads_quantize_kernel(const __grid_constant__ HeadsParams p) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  const HeadsProduct<Shared> product{p, *reinterpret_cast<Shared*>(shared)};
  if (threadIdx.x == kMultiplyingThreads) product.begin();
  __syncthreads();
  wait_for_previous();
  float sums[Shared::kSums];
  if (threadIdx.x == kMultiplyingThreads) {
    product.feed();
  } else if (threadIdx.x < kMultiplyingThreads) {
    product.multiply(sums);
  }
  __syncthreads();
  if (threadIdx.x < kMultiplyingThreads) product.keep(sums);
  __syncthreads();
  if (threadIdx.x < kMultiplyingThreads) product.quantise();
}

template <int kTokens>
void start(const ProductParams& product, const ops::Activation& out, ops::Stream& stream) {
  using Shared = HeadsShared<kTokens>;
  const int64_t x_head = product.x_head_bytes / 2, in = product.in,
                weight_head = product.a.weight_head_bytes / (in * 2), last = product.heads - 1;
  const int box_tokens = std::min(product.tokens, kTokens);
  const HeadsParams p{.x = tensor_map({.data = product.x,
                                       .rows = product.tokens,
                                       .columns = last * x_head + in,
                                       .stride = product.x_stride_bytes / 2},
                                      box_tokens),
                      .weight = tensor_map({.data = product.a.weight,
                                            .rows = last * weight_head + kOutputs,
                                            .columns = in,
                                            .stride = in},
                                           kOutputs),
                      .q = static_cast<uint8_t*>(out.values.data()),
                      .scale = out.scale.as<float>(),
                      .tokens = product.tokens,
                      .heads = product.heads,
                      .lines = static_cast<int>(in / kLineChannels),
                      .box_tokens = box_tokens,
                      .x_head = static_cast<int>(x_head),
                      .weight_head = static_cast<int>(weight_head)};
  launch(heads_quantize_kernel<Shared>,
         {.grid = dim3(num_tiles(p.tokens, kTokens), static_cast<unsigned>(p.heads)),
          .block = kHeadsThreads,
          .shared_bytes = static_cast<int>(sizeof(Shared))},
         stream, p);
}

}  // namespace

bool takes_heads_quantize(const ops::HeadLinearQuantizeArgs& args, const ops::Stream& stream) {
  return args.attention == nullptr && args.x.dim(0) <= kMaxBatchTokens &&
         args.weight.data.dtype() == tensor::DType::kBf16 && args.weight.data.dim(1) == kOutputs &&
         !stream.backend().batch_invariant &&
         takes_heads_of_batch(head_product(args.x, args.weight));
}

// The narrower tiles where all run at once: their blocks have fewer rows to wait for.
void heads_quantize(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream) {
  const ProductParams product = head_product(args.x, args.weight);
  const int64_t blocks = int64_t{num_tiles(product.tokens, 32)} * product.heads;
  blocks <= int64_t{2} * num_multiprocessors() ? start<32>(product, args.out, stream)
                                               : start<64>(product, args.out, stream);
}

}  // namespace fathom::cuda
