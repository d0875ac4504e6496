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
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/runtime/stream.cuh"
#include "ops/head_linear.h"

namespace fathom::cuda {
namespace {

constexpr int kOutputs = kScaleBlock, kLineChannels = kLineBytes / 2;
constexpr int kMultiplyingThreads = 256, kHeadsThreads = kMultiplyingThreads + 32;
constexpr int kWeightBytes = kOutputs * kLineBytes, kRoomBytes = 112 << 10;
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
struct HeadsConfig {
  static constexpr int kTokens = kTokensT, kSums = kTokens / 2;  // of a block; of a thread
  static constexpr int kStageBytes = kWeightBytes + kTokens * kLineBytes;
  static constexpr int kStages = (kRoomBytes - 1024) / (kStageBytes + 16);
  static constexpr int kBarriersAt = kStages * kStageBytes;
  static constexpr int kSharedBytes = kBarriersAt + kStages * 16;
  static_assert(kTokens * kSumStride * 4 <= kBarriersAt);
};

template <class C>
struct HeadsProduct {
  const HeadsParams& p;
  char* shared;
  uint32_t base;
  int head, first_token;

  __device__ __forceinline__ HeadsProduct(const HeadsParams& params, char* shared_memory)
      : p(params),
        shared(shared_memory),
        base(shared_address(shared_memory)),
        head(static_cast<int>(blockIdx.y)),
        first_token(static_cast<int>(blockIdx.x) * C::kTokens) {}

  __device__ __forceinline__ uint32_t stage_of(int line) const {
    return base + line % C::kStages * C::kStageBytes;
  }
  __device__ __forceinline__ uint32_t full(int line) const {
    return base + C::kBarriersAt + line % C::kStages * 16;
  }
  __device__ __forceinline__ uint32_t empty(int line) const { return full(line) + 8; }
  static __device__ __forceinline__ uint32_t phase(int line) { return line / C::kStages & 1; }

  // One thread feeds.
  __device__ __forceinline__ void load_weights(int line) const {
    barrier_expect(full(line), kWeightBytes + p.box_tokens * kLineBytes);
    load_tile(&p.weight, stage_of(line), full(line), line * kLineChannels, head * p.weight_head);
  }
  __device__ __forceinline__ void load_tokens(int line) const {
    load_tile(&p.x, stage_of(line) + kWeightBytes, full(line),
              head * p.x_head + line * kLineChannels, first_token);
  }
  __device__ __forceinline__ int first_lines() const { return min(p.lines, C::kStages); }
  __device__ __forceinline__ void begin() const {
    for (int stage = 0; stage < C::kStages; ++stage) {
      barrier_init(full(stage), 1);
      barrier_init(empty(stage), kMultiplyingThreads / 32);
    }
    barriers_are_ready();
    for (int line = 0; line < first_lines(); ++line) load_weights(line);
  }
  __device__ __forceinline__ void feed() const {
    for (int line = 0; line < first_lines(); ++line) load_tokens(line);
    for (int line = C::kStages; line < p.lines; ++line) {
      barrier_wait(empty(line), phase(line) ^ 1);
      load_weights(line);
      load_tokens(line);
    }
  }

  __device__ __forceinline__ void release(int line) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty(line));
  }
  // A line's products run while the next line's are started.
  __device__ __forceinline__ void multiply(float (&sums)[C::kSums]) const {
    const uint32_t first_row = threadIdx.x / 128 * 64 * kLineBytes;
    for (int line = 0; line < p.lines; ++line) {
      barrier_wait(full(line), phase(line));
      const uint32_t a = descriptor_word(stage_of(line) + first_row);
      const uint32_t b = descriptor_word(stage_of(line) + kWeightBytes);
      mma_begin(sums);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), line > 0 || i > 0,
            Bf16{});
      mma_commit();
      mma_wait<1>(sums);
      if (line > 0) release(line - 1);
    }
    mma_wait<0>(sums);
  }
  // REQUIRES: all have multiplied.
  __device__ __forceinline__ void keep(const float (&sums)[C::kSums]) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    float* const kept = reinterpret_cast<float*>(shared) + row;
#pragma unroll
    for (int i = 0; i < C::kSums; ++i)
      kept[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumStride + i % 4 / 2 * 8] = sums[i];
  }
  // REQUIRES: all have kept their sums.
  __device__ __forceinline__ void quantise() const {
    const int lane = threadIdx.x % 32, num_tokens = min(p.tokens - first_token, C::kTokens);
    for (int token = static_cast<int>(threadIdx.x) / 32; token < num_tokens;
         token += kMultiplyingThreads / 32) {
      const float4 sum = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(shared) +
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

template <class C>
__global__ void __launch_bounds__(kHeadsThreads, 2)
    heads_quantize_kernel(const __grid_constant__ HeadsParams p) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  const HeadsProduct<C> product(p, shared);
  if (threadIdx.x == kMultiplyingThreads) product.begin();
  __syncthreads();
  wait_for_previous();
  float sums[C::kSums];
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
  using C = HeadsConfig<kTokens>;
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
  launch(heads_quantize_kernel<C>,
         {.grid = dim3(num_tiles(p.tokens, kTokens), static_cast<unsigned>(p.heads)),
          .block = kHeadsThreads,
          .shared_bytes = C::kSharedBytes},
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
