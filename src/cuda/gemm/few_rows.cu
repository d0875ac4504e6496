#include "cuda/gemm/few_rows.h"

#include "cuda/device/convert.cuh"
#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/gate_up_map.h"
#include "cuda/gemm/stage_ring.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

// Persistent, warp-specialised: one warp loads by TMA, two warpgroups multiply (wgmma) with the weights as the
// instruction's 64 rows and tokens as its columns. Bound by memory: each expert's weights are read once.
//
// A task is a tile of rows and 64 columns of h. A warpgroup has 32 of them: eight rows of gate and eight of up
// alternate in shared memory, so that both of a column are one thread's. A stage is 128 channels.
//
// Grid: all multiprocessors, over tasks in turn. Shared memory: stages of 24 KB, of which 16 are weights.

namespace fathom::cuda {
namespace {

constexpr int kGroupRows = kGateUpGroupRows, kTaskColumns = 64,
              kGroups = 2 * kTaskColumns / kGroupRows;
constexpr int kMultiplyingThreads = 256, kFewThreads = kMultiplyingThreads + 32;
constexpr int kChannels = kScaleBlock;  // of a stage; e4m3, so as many bytes

struct FewRowsShared {
  static constexpr int kStages = 9;
  struct Stage {
    uint8_t weights[kGroups][kGroupRows * kChannels];
    uint8_t tokens[kFewTileRows][kChannels];
  };
  Stage stages[kStages];
  uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(FewRowsShared) <= (227 << 10));

struct FewRowsParams {
  CUtensorMap x, gate_up;  // of a row; gate_up_map.h
  const float* x_scale;
  const float* gate_up_scale;
  GroupTiles tiles;
  const int* token_of_row;
  float* h;
  int steps, inter, columns;  // of 128 channels; tasks beside each other
};

using FewRowsRing = StageRing<FewRowsShared>;

template <class Take>
__device__ __forceinline__ void for_each_task(const FewRowsParams& p, const Take& take) {
  const int tasks = *p.tiles.count * p.columns;
  for (int task = static_cast<int>(blockIdx.x); task < tasks; task += static_cast<int>(gridDim.x))
    take(p.tiles.tiles[task / p.columns], task % p.columns);
}

// One warp: a lane loads the rows of one or two tokens, the first one the weights, too: sixteen boxes of a group each
// took half as long again.
__device__ __forceinline__ void load_tasks(const FewRowsParams& p, FewRowsShared& shared) {
  constexpr int kRowsOfLane = kFewTileRows / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  FewRowsRing ring{shared};
  for_each_task(p, [&](const GroupTile& tile, int column) {
    int tokens[kRowsOfLane];
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i)
      tokens[i] = i * 32 + lane < tile.num_rows ? p.token_of_row[tile.row + i * 32 + lane] : -1;
    for (int k = 0; k < p.steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.parity ^ 1);
      if (lane == 0) {
        barrier_expect(ring.full(),
                       sizeof((*ring).weights) + static_cast<uint32_t>(tile.num_rows) * kChannels);
        load_tile(&p.gate_up, shared_address((*ring).weights), ring.full(),
                  {k * kChannels, 0, 0, column * kTaskColumns / kGroupRows, tile.group});
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i)
        if (tokens[i] >= 0)
          load_tile(&p.x, shared_address((*ring).tokens[i * 32 + lane]), ring.full(), k * kChannels,
                    tokens[i]);
    }
  });
}

// Up to kTokens rows: sums of 128 channels are scaled and added in float32, as in product_kernel.cuh.
template <int kTokens>
__device__ __forceinline__ void multiply_task(const FewRowsParams& p, FewRowsRing& ring,
                                              const GroupTile& tile, int column) {
  constexpr int kSums = kTokens / 2, kMine = kSums / 2;  // of a thread; tokens of a thread
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto row_of = [&](int mine) { return mine / 2 * 8 + lane % 4 * 2 + mine % 2; };
  const float* x_scales[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int row = row_of(i);
    const int token = row < tile.num_rows ? p.token_of_row[tile.row + row] : 0;
    x_scales[i] = p.x_scale + int64_t{token} * p.steps;
  }
  const int blocks = p.inter / kScaleBlock;
  const float* const gate_scales =
      p.gate_up_scale +
      (int64_t{tile.group} * 2 * blocks + column * kTaskColumns / kScaleBlock) * p.steps;
  const float* const up_scales = gate_scales + int64_t{blocks} * p.steps;
  float totals[kSums] = {}, sums[kSums];
  for (int k = 0; k < p.steps; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    const uint32_t a = descriptor_word(shared_address((*ring).weights[warpgroup * (kGroups / 2)]));
    const uint32_t b = descriptor_word(shared_address((*ring).tokens));
    mma_begin(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), i > 0,
          tensor::F8E4M3{});
    mma_commit();
    const float gate = gate_scales[k], up = up_scales[k];
    float x[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) x[i] = x_scales[i][k];
    mma_wait<0>(sums);
    if (lane == 0) barrier_arrive(ring.empty());
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      totals[i] += sums[i] * (x[i / 4 * 2 + i % 2] * (i % 4 < 2 ? gate : up));
  }
  const int to = column * kTaskColumns + (warpgroup * 4 + warp) * kGroupRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int row = row_of(i), at = i / 2 * 4 + i % 2;
    if (row < tile.num_rows)
      p.h[(int64_t{tile.row} + row) * p.inter + to] = silu_mul(totals[at], totals[at + 2]);
  }
}

__global__ void __launch_bounds__(kFewThreads, 1)
    few_rows_kernel(const __grid_constant__ FewRowsParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  FewRowsShared& shared = *reinterpret_cast<FewRowsShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    prefetch_map(&p.gate_up), prefetch_map(&p.x);
    for (int i = 0; i < FewRowsShared::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), kMultiplyingThreads / 32);
    }
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x >= kMultiplyingThreads) return load_tasks(p, shared);
  FewRowsRing ring{shared};
  for_each_task(p, [&](const GroupTile& tile, int column) {
    if (tile.num_rows <= 16) return multiply_task<16>(p, ring, tile, column);
    if (tile.num_rows <= 32) return multiply_task<32>(p, ring, tile, column);
    multiply_task<64>(p, ring, tile, column);
  });
}

}  // namespace

bool takes_few_rows(Stored weight, int64_t inter, int64_t hidden_size) {
  constexpr int64_t kInter = 256;
  return weight == Stored::kF8 && inter == kInter && hidden_size % kScaleBlock == 0;
}

void few_rows_gate_up(const FewRowsArgs& args, ops::Stream& stream) {
  using tensor::DType;
  const FewRowsParams params{
      .x = tensor_map({args.x, DType::kF8E4M3, args.tokens, args.hidden_size, args.x_stride}, 1),
      .gate_up = gate_up_map({.weights = args.gate_up,
                              .experts = args.experts,
                              .inter = args.inter,
                              .row_bytes = args.hidden_size},
                             kTaskColumns),
      .x_scale = args.x_scale,
      .gate_up_scale = args.gate_up_scale,
      .tiles = args.tiles,
      .token_of_row = args.token_of_row,
      .h = args.h,
      .steps = static_cast<int>(args.hidden_size / kScaleBlock),
      .inter = static_cast<int>(args.inter),
      .columns = static_cast<int>(args.inter / kTaskColumns)};
  launch(few_rows_kernel,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kFewThreads,
          .shared_bytes = sizeof(FewRowsShared)},
         stream, params);
}

}  // namespace fathom::cuda
