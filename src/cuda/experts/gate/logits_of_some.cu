// Parts of the gate's logits for some hundred tokens, with the bits of logits.cu. Bound by latency: a block has one
// split of the width, 128 to 448 channels of the published models, and asks for all of it at once or nearly so.
// Grid: x = tiles of 64 or 128 experts, y = tiles of 64 tokens, z = splits. A warp has 32 x 32. Shared: 4 stages of 64
// channels, 64 or 96 KB, whose weights are under way before the kernel ahead has finished.

#include "cuda/experts/gate/gate.h"
#include "cuda/experts/gate/logits_tile.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

// Of a block, where that is all of them.
constexpr int kFewExperts = 64;
constexpr int kStages = 4, kStageSteps = kStageChannels / kGateStep;

struct SomeParams {
  const Bf16* x;       // bf16[tokens, hidden_size], rows x_stride apart
  const Bf16* weight;  // bf16[experts, hidden_size]
  float* parts;        // f32[tokens, kGateSplits, experts]
  int x_stride, hidden_size, experts, tokens;
  int stages;  // of a split
};

template <int kExperts>
constexpr int kThreads = kExperts / kWarpTile*(kBlockTokens / kWarpTile) * 32;

template <int kExperts>
__global__ void __launch_bounds__(kThreads<kExperts>, 2)
    sum_split(const __grid_constant__ SomeParams p) {
  extern __shared__ __align__(128) char dynamic[];
  using Stage = LogitsStage<kExperts>;
  Stage* const stages = reinterpret_cast<Stage*>(dynamic);
  let_next_start();
  const int first_expert = blockIdx.x * kExperts, first_block_token = blockIdx.y * kBlockTokens;
  const int split = blockIdx.z, first_channel = split * p.stages * kStageChannels;
  const Bf16* const weight = p.weight + int64_t{first_expert} * p.hidden_size + first_channel;
  const Bf16* const x = p.x + int64_t{first_block_token} * p.x_stride + first_channel;
  const auto copy_weight = [&](int stage) {
    if (stage < p.stages)
      copy_rows<kThreads<kExperts>>(stages[stage % kStages].weight, weight, p.hidden_size,
                                    p.experts - first_expert, stage * kStageChannels);
  };
  const auto copy_x = [&](int stage) {
    if (stage < p.stages)
      copy_rows<kThreads<kExperts>>(stages[stage % kStages].x, x, p.x_stride,
                                    p.tokens - first_block_token, stage * kStageChannels);
    commit_copies();
  };
  for (int stage = 0; stage < kStages - 1; ++stage) copy_weight(stage);
  wait_for_previous();
  for (int stage = 0; stage < kStages - 1; ++stage) copy_x(stage);
  constexpr int kExpertTiles = kExperts / kWarpTile;
  const int warp = threadIdx.x / 32;
  const int first_row = warp % kExpertTiles * kWarpTile;
  const int first_token = warp / kExpertTiles * kWarpTile;
  float d[kRowTiles][kTokenTiles][4] = {};
  for (int stage = 0; stage < p.stages; ++stage) {
    wait_copies<kStages - 2>();
    __syncthreads();  // all threads' copies are there, and the stage before has been read
    copy_weight(stage + kStages - 1);
    copy_x(stage + kStages - 1);
#pragma unroll
    for (int half = 0; half < kStageSteps; ++half)
      multiply_step(stages[stage % kStages], half, first_row, first_token, d);
  }
  for_each_sum(d, [&](int of_row, int of_token, float sum) {
    const int expert = first_expert + first_row + of_row;
    const int token = first_block_token + first_token + of_token;
    if (expert < p.experts && token < p.tokens)
      p.parts[(int64_t{token} * kGateSplits + split) * p.experts + expert] = sum;
  });
}

template <int kExperts>
void run(const SomeParams& params, ops::Stream& stream) {
  launch(sum_split<kExperts>,
         {.grid = {num_tiles(params.experts, kExperts), num_tiles(params.tokens, kBlockTokens),
                   kGateSplits},
          .block = kThreads<kExperts>,
          .shared_bytes = kStages * static_cast<int>(sizeof(LogitsStage<kExperts>))},
         stream, params);
}

}  // namespace

bool takes_some_tokens(const ops::MoeGateArgs& args, GateTokens tokens) {
  // Fewer are faster in the other kernel, measured on an H200.
  const int64_t fewest = args.weight.dim(0) <= kFewExperts ? 96 : 129;
  return tokens.end - tokens.begin >= fewest && args.weight.dtype() == tensor::DType::kBf16 &&
         args.weight.dim(1) % (kGateSplits * kStageChannels) == 0 && rows_aligned(args.x, 16) &&
         rows_aligned(args.weight, 16) && args.x.stride(0) < (1 << 24);
}

void gate_logits_of_some(const ops::MoeGateArgs& args, GateTokens tokens, float* parts,
                         ops::Stream& stream) {
  const int64_t hidden_size = args.weight.dim(1);
  const SomeParams params{.x = args.x.as<Bf16>() + tokens.begin * args.x.stride(0),
                          .weight = args.weight.as<Bf16>(),
                          .parts = parts,
                          .x_stride = static_cast<int>(args.x.stride(0)),
                          .hidden_size = static_cast<int>(hidden_size),
                          .experts = static_cast<int>(args.weight.dim(0)),
                          .tokens = static_cast<int>(tokens.end - tokens.begin),
                          .stages = static_cast<int>(hidden_size / (kGateSplits * kStageChannels))};
  if (params.experts <= kFewExperts) return run<kFewExperts>(params, stream);
  run<128>(params, stream);
}

}  // namespace fathom::cuda
