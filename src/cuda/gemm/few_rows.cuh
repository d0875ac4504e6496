#pragma once
// What the parts of the kernel of few_rows.h share: its parameters, shared memory, and how work is dealt out.
//
//   for_each_part(p, [&](const Part& part) { ... });      // of gate and up, in each role
//   Ring ring{shared};  ... ring.full() ...;  ring.advance();
//
// Internal to few_rows.cu.

#include "cuda/device/convert.cuh"
#include "cuda/gemm/few_rows.h"
#include "cuda/gemm/gate_up_map.h"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stage_ring.cuh"

namespace fathom::cuda::few_rows {

inline constexpr int kMultiplyingThreads = 256, kCopyingThreads = 96;
inline constexpr int kThreads = kMultiplyingThreads + kCopyingThreads + 32;
inline constexpr int kWarps = kMultiplyingThreads / 32;
inline constexpr int kMultiplyBarrier = 1;
// Of a stage: bytes of a row, which are channels; rows of weights.
inline constexpr int kChannels = kScaleBlock, kWeightRows = 2 * kScaleBlock;
// Gate and up: columns of h of a task. Rows of weights of one warpgroup's instruction, which has two of them.
inline constexpr int kTaskColumns = kScaleBlock, kHalves = 2, kHalfRows = 64;
// Down: outputs and rows of a task, and how often 128 channels.
inline constexpr int kOutputs = kScaleBlock, kDownRows = 32, kSteps = 2;
static_assert(kSteps * kDownRows == kFewTileRows && kSteps * kOutputs == kWeightRows);

// Rows [row, row + num_rows) of down's product and outputs [128 * column, ...) of a group; no rows: there is no more.
// Of a tile with more rows than a stage has room for the second stage has the rest, for the weights of the first.
struct DownTask {
  int group, tile, row, num_rows, column;
  bool is_first, is_last;
};

struct Shared {
  static constexpr int kStages = 5;
  struct Stage {
    uint8_t weights[kWeightRows]
                   [kChannels];  // down: the first 128 channels of all outputs, then the others
    uint8_t rows[kFewTileRows][kChannels];  // likewise
  };
  Stage stages[kStages];
  uint8_t h[kFewTileRows][kTaskColumns];
  float most[kFewTileRows][kWarps];
  float row_scales[kStages][kFewTileRows];  // down: two of a row
  float scales[kStages][2];                 // of gate and up; of down's two times 128 channels
  DownTask tasks[kStages];
  uint64_t full[kStages], empty[kStages], known[kStages];  // known: what down's task is
};
static_assert(sizeof(Shared) <= (227 << 10));

struct Ring : StageRing<Shared> {
  __device__ uint32_t known() const { return shared_address(&shared.known[stage]); }
};

struct Params {
  CUtensorMap gate_up, shared_gate_up;  // gate_up_map.h
  CUtensorMap down, shared_down;        // down_map()
  const uint8_t* x;
  int64_t x_stride;
  const float* x_scale;
  const float* gate_up_scale;
  const float* shared_gate_up_scale;
  const float* down_scale;
  const float* shared_down_scale;
  GroupTiles tiles;
  const int* token_of_row;
  uint8_t* h;
  float* h_scale;
  tensor::Bf16* y;
  float* carried;     // [blocks][sums of a thread][threads]
  uint32_t* tickets;  // [blocks]: sums were left
  int* counters;      // [tiles], columns of h that are there; then the next task of down
  int most_tiles;
  int steps, inter, columns;  // of 128 channels; tasks beside each other
  int hidden_size, down_columns;
  int experts;  // without the shared one
};

// Channels [begin, end) of a task of gate and up, in steps.
struct Part {
  GroupTile tile;
  int tile_index, column, begin, end;
};

// This block's parts: first the one that another block ends, last the one that another block began.
template <class Take>
__device__ __forceinline__ void for_each_part(const Params& p, const Take& take) {
  const int64_t all = int64_t{*p.tiles.count} * p.columns * p.steps;
  const int64_t blocks = min(int64_t{gridDim.x}, all), block = blockIdx.x;
  if (block >= blocks) return;
  const auto begin = static_cast<int>(all * block / blocks);
  const auto end = static_cast<int>(all * (block + 1) / blocks);
  const int first = begin / p.steps, last = end / p.steps;
  for (int i = 0; i <= last - first; ++i) {
    const int task = i == 0 ? last : i == last - first ? first : first + i;
    const int from = task == first ? begin - first * p.steps : 0;
    const int to = task == last ? end - last * p.steps : p.steps;
    const int tile = task / p.columns;
    if (from < to) take(Part{p.tiles.tiles[tile], tile, task % p.columns, from, to});
  }
}

// This block's tasks of down: most are dealt out evenly, so that a block has the tiles whose h it made, and the rest is
// taken by who is ready.
template <class Take>
__device__ __forceinline__ void for_each_down_task(const Params& p, const Take& take) {
  constexpr int kDealtOf8 = 6;
  const int all = *p.tiles.count * p.down_columns, blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  const auto dealt = static_cast<int>(int64_t{all} * kDealtOf8 / 8);
  const auto share = [&](int of) { return static_cast<int>(int64_t{dealt} * of / blocks); };
  int* const next_task = p.counters + p.most_tiles;
  int next = dealt + atomicAdd(next_task, 1);
  for (int task = share(block); task < share(block + 1); ++task) take(task);
  while (next < all) {
    const int task = next;
    next = dealt + atomicAdd(next_task, 1);
    take(task);
  }
}

}  // namespace fathom::cuda::few_rows
