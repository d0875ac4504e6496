// Whole logits of many tokens for bf16 weights, with the bits of the parts of logits.cu and their sum in order.
// Bound by the tensor cores through warp-wide products: 2 * tokens * experts * hidden_size operations.
// Grid: one block per 128 experts and 64 tokens, 8 warps of 32 x 32; two blocks a multiprocessor. Shared: 4 stages of
// 64 channels, 96 KB.

#include "cuda/device/convert.cuh"
#include "cuda/elementwise/vector.cuh"
#include "cuda/experts/gate/gate.h"
#include "cuda/experts/gate/logits_tile.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockExperts = 128;
constexpr int kStages = 4;
constexpr int64_t kMinTokens = 1409;  // fewer are faster in the other kernel, measured on an H200

struct ManyParams {
  const Bf16* x;       // bf16[tokens, hidden_size], rows x_stride apart
  const Bf16* weight;  // bf16[experts, hidden_size]
  float* logits;       // f32[tokens, experts]
  int x_stride, hidden_size, experts, tokens;
  int steps;  // of a split
};

using Stage = LogitsStage<kBlockExperts>;

// The sum goes on with the next split.
__device__ __forceinline__ void add_split(float (&d)[kRowTiles][kTokenTiles][4],
                                          float (&sum)[kRowTiles][kTokenTiles][4]) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[r][t][i] += d[r][t][i];
        d[r][t][i] = 0;
      }
}

__global__ void __launch_bounds__(kThreads, 2) sum_whole(const __grid_constant__ ManyParams p) {
  extern __shared__ __align__(128) char dynamic[];
  Stage* const stages = reinterpret_cast<Stage*>(dynamic);
  let_next_start();
  const int first_expert = blockIdx.x * kBlockExperts,
            first_block_token = blockIdx.y * kBlockTokens;
  const Bf16* const weight = p.weight + int64_t{first_expert} * p.hidden_size;
  const Bf16* const x = p.x + int64_t{first_block_token} * p.x_stride;
  const int num_stages = p.hidden_size / kStageChannels;
  const auto fill = [&](int stage) {
    if (stage < num_stages) {
      Stage& to = stages[stage % kStages];
      copy_rows<kThreads>(to.weight, weight, p.hidden_size, p.experts - first_expert,
                          stage * kStageChannels);
      copy_rows<kThreads>(to.x, x, p.x_stride, p.tokens - first_block_token,
                          stage * kStageChannels);
    }
    commit_copies();
  };
  wait_for_previous();
  for (int stage = 0; stage < kStages - 1; ++stage) fill(stage);
  const int warp = threadIdx.x / 32;
  const int first_row = warp % 4 * kWarpTile, first_token = warp / 4 * kWarpTile;
  float d[kRowTiles][kTokenTiles][4] = {}, sum[kRowTiles][kTokenTiles][4] = {};
  int left = p.steps;  // of the split
  for (int stage = 0; stage < num_stages; ++stage) {
    wait_copies<kStages - 2>();
    __syncthreads();  // all threads' copies are there, and the stage before has been read
    fill(stage + kStages - 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      multiply_step(stages[stage % kStages], half, first_row, first_token, d);
      if (--left > 0) continue;
      add_split(d, sum);
      left = p.steps;
    }
  }
  if (left < p.steps) add_split(d, sum);
  for_each_sum(sum, [&](int of_row, int of_token, float logit) {
    const int expert = first_expert + first_row + of_row;
    const int token = first_block_token + first_token + of_token;
    if (expert < p.experts && token < p.tokens)
      p.logits[int64_t{token} * p.experts + expert] = logit;
  });
}

}  // namespace

bool takes_many_tokens(const ops::MoeGateArgs& args) {
  return args.x.dim(0) >= kMinTokens && args.weight.dtype() == tensor::DType::kBf16 &&
         args.weight.dim(1) % kStageChannels == 0 && rows_aligned(args.x, 16) &&
         rows_aligned(args.weight, 16) && args.x.stride(0) < (1 << 24);
}

void gate_logits_of_many(const ops::MoeGateArgs& args, float* logits, ops::Stream& stream) {
  const int64_t hidden_size = args.weight.dim(1);
  const ManyParams params{
      .x = args.x.as<Bf16>(),
      .weight = args.weight.as<Bf16>(),
      .logits = logits,
      .x_stride = static_cast<int>(args.x.stride(0)),
      .hidden_size = static_cast<int>(hidden_size),
      .experts = static_cast<int>(args.weight.dim(0)),
      .tokens = static_cast<int>(args.x.dim(0)),
      .steps = static_cast<int>(num_tiles(hidden_size, kGateSplits * kGateStep))};
  launch(
      sum_whole,
      {.grid = {num_tiles(params.experts, kBlockExperts), num_tiles(params.tokens, kBlockTokens)},
       .block = kThreads,
       .shared_bytes = kStages * static_cast<int>(sizeof(Stage))},
      stream, params);
}

}  // namespace fathom::cuda
