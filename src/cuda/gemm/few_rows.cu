#include "cuda/gemm/few_rows.h"

#include "cuda/gemm/few_rows.cuh"
#include "cuda/gemm/few_rows_down.cuh"
#include "cuda/gemm/few_rows_gate_up.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/runtime/stream.cuh"

// Persistent, warp-specialised: a thread loads weights by TMA, three warps copy rows, two warpgroups multiply (wgmma)
// with the weights as the instruction's 64 rows and rows as its columns. Bound by memory: each expert's weights are
// read once, and weights of down are under way while gate and up end.
//
// Gate and up: a task is a tile of rows and 128 columns of h, so it has all that is quantised together. Eight rows of
// gate and eight of up alternate in shared memory, so that both of a column are one thread's. A stage is 128 channels.
// The stages of all tasks are dealt out evenly, one range to a block, so a task may be two blocks': the first takes its
// channels before all else and leaves its sums in global memory, the second goes on from there after all else.
//
// Down: a task, and a stage, is 128 outputs of a tile, all 256 channels of them; a block's rows are copied once all of
// the tile's h is there.
//
// Grid: all multiprocessors, whose blocks wait for each other's sums and h. Shared memory: stages of 40 KB, of which 32
// are weights.

namespace fathom::cuda::few_rows {

// One thread.
struct WeightsLoader {
  const Params& p;
  Shared& shared;
  Ring ring{shared};

  __device__ __forceinline__ void expect() const {
    barrier_expect(ring.full(), sizeof((*ring).weights));
  }
  __device__ __forceinline__ void load_gate_up() {
    for_each_part(p, [&](const Part& part) {
      const int group = part.tile.group;
      const bool is_routed = group < p.experts;
      for (int k = part.begin; k < part.end; ++k, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        expect();
        barrier_arrive(ring.known());
        load_tile_once(is_routed ? &p.gate_up : &p.shared_gate_up, shared_address((*ring).weights),
                       ring.full(),
                       {k * kChannels, 0, 0, part.column * kTaskColumns / kGateUpGroupRows,
                        is_routed ? group : group - p.experts});
      }
    });
  }
  __device__ __forceinline__ void load_down() {
    for_each_down_task(p, [&](int number) {
      const GroupTile tile = p.tiles.tiles[number / p.down_columns];
      const int column = number % p.down_columns;
      const bool is_routed = tile.group < p.experts;
      const int row = (is_routed ? tile.group * p.hidden_size : 0) + column * kOutputs;
      for (int done = 0; done < tile.num_rows; done += kDownRows, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        shared.tasks[ring.stage] = {.group = tile.group,
                                    .tile = number / p.down_columns,
                                    .row = tile.row + done,
                                    .num_rows = min(kDownRows, tile.num_rows - done),
                                    .column = column,
                                    .is_first = done == 0,
                                    .is_last = done + kDownRows >= tile.num_rows};
        barrier_arrive(ring.known());
        if (done > 0) {
          barrier_arrive(ring.full());
          continue;
        }
        expect();
        load_tile_once(is_routed ? &p.down : &p.shared_down, shared_address((*ring).weights),
                       ring.full(), {0, row, 0, 0, 0});
      }
    });
    barrier_wait(ring.empty(), ring.parity ^ 1);
    shared.tasks[ring.stage].num_rows = 0;
    barrier_arrive(ring.known());
    barrier_arrive(ring.full());
  }
};

// Three warps: as boxes of a row the copy engine was late. Swizzled as it does.
struct RowsCopier {
  static constexpr int kPieces = kChannels / 16, kApart = kCopyingThreads / kPieces;

  const Params& p;
  Shared& shared;
  Ring ring{shared};
  int thread = static_cast<int>(threadIdx.x) - kMultiplyingThreads - 32;
  int first = thread / kPieces, piece = thread % kPieces;

  __device__ __forceinline__ uint32_t place_of(int row) const {
    return shared_address((*ring).rows[row]) + (piece ^ row % 8) * 16;
  }
  // Two scales of the weights.
  __device__ __forceinline__ void copy_scale(const float* from) const {
    copy_async_4(shared_address(&shared.scales[ring.stage][thread]), from);
  }
  __device__ __forceinline__ void copy_tokens() {
    for_each_part(p, [&](const Part& part) {
      const GroupTile& tile = part.tile;
      const auto token_of = [&](int row) {
        return row < tile.num_rows ? p.token_of_row[tile.row + row] : -1;
      };
      constexpr int kRows = (kFewTileRows + kApart - 1) / kApart;  // of a thread
      const uint8_t* from[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int token = token_of(i * kApart + first);
        from[i] = token >= 0 ? p.x + token * p.x_stride + piece * 16 : nullptr;
      }
      const int token = token_of(thread);
      const float* const x_scales = p.x_scale + int64_t{token} * p.steps;
      const float* const scales =
          (tile.group < p.experts ? p.gate_up_scale + int64_t{tile.group} * 2 * p.columns * p.steps
                                  : p.shared_gate_up_scale) +
          (thread * p.columns + part.column) * p.steps;
      for (int k = part.begin; k < part.end; ++k, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (i * kApart >= tile.num_rows) break;
          if (from[i] != nullptr)
            copy_async_16(place_of(i * kApart + first), from[i] + k * kChannels, true);
        }
        if (token >= 0)
          copy_async_4(shared_address(&shared.row_scales[ring.stage][thread]), x_scales + k);
        if (thread < 2) copy_scale(scales + k);
        barrier_arrive_after_copies(ring.full());
      }
    });
  }
  __device__ __forceinline__ void wait_for_h(int tile) const {
    const int* const counter = p.counters + tile;
    int columns;
    do {
      asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(columns) : "l"(counter) : "memory");
    } while (columns < p.columns);
  }
  __device__ __forceinline__ void copy_h() {
    for (int ready = -1;; ring.advance()) {
      barrier_wait(ring.known(), ring.parity);
      const DownTask task = shared.tasks[ring.stage];
      if (task.num_rows == 0) return barrier_arrive(ring.full());
      if (task.tile != ready) wait_for_h(task.tile);
      ready = task.tile;
      for (int row = first; row < task.num_rows; row += kApart)
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          copy_async_16(place_of(k * kDownRows + row),
                        p.h + (int64_t{task.row} + row) * p.inter + k * kChannels + piece * 16,
                        true);
      if (thread < task.num_rows)
        copy_async_small<sizeof(float2)>(shared_address(&shared.row_scales[ring.stage][thread * 2]),
                                         p.h_scale + (int64_t{task.row} + thread) * kSteps, true);
      if (thread < kSteps) {
        const bool is_routed = task.group < p.experts;
        const float* const scales =
            is_routed ? p.down_scale + int64_t{task.group} * p.down_columns * kSteps
                      : p.shared_down_scale;
        copy_scale(scales + task.column * kSteps + thread);
      }
      barrier_arrive_after_copies(ring.full());
    }
  }
};

__device__ __forceinline__ void multiply_all(const Params& p, Shared& shared) {
  Ring ring{shared};
  for_each_part(p, [&](const Part& part) {
    const int rows = part.tile.num_rows;
    if (rows <= 8) return multiply_part<8>(p, shared, ring, part);
    if (rows <= 16) return multiply_part<16>(p, shared, ring, part);
    if (rows <= 32) return multiply_part<32>(p, shared, ring, part);
    multiply_part<64>(p, shared, ring, part);
  });
  for (;; ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    show_to_engines();  // what threads copied
    const DownTask task = shared.tasks[ring.stage];
    if (task.num_rows == 0) return;
    if (task.num_rows <= 8) {
      multiply_down<8>(p, shared, ring, task);
    } else if (task.num_rows <= 16) {
      multiply_down<16>(p, shared, ring, task);
    } else {
      multiply_down<kDownRows>(p, shared, ring, task);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) few_rows_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  if (threadIdx.x == 0) {
    prefetch_map(&p.gate_up), prefetch_map(&p.down);
    for (int i = 0; i < Shared::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1 + kCopyingThreads);
      barrier_init(shared_address(&shared.empty[i]), kWarps);
      barrier_init(shared_address(&shared.known[i]), 1);
    }
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < kMultiplyingThreads) return multiply_all(p, shared);
  if (threadIdx.x >= kMultiplyingThreads + 32) {
    RowsCopier copier{p, shared};
    copier.copy_tokens();
    return copier.copy_h();
  }
  if (threadIdx.x > kMultiplyingThreads) return;
  WeightsLoader loader{p, shared};
  loader.load_gate_up();
  loader.load_down();
}

CUtensorMap gate_up_map_of(const void* weights, int64_t experts, const FewRowsArgs& args) {
  return gate_up_map(
      {.weights = weights, .experts = experts, .inter = args.inter, .row_bytes = args.hidden_size},
      kTaskColumns);
}

// Boxes of 128 rows: the first 128 bytes of all, then the others.
CUtensorMap down_map(const void* weights, int64_t rows) {
  constexpr int kBytes = kSteps * kChannels;
  return tensor_map({.data = weights,
                     .sizes = {kChannels, rows, kSteps, 1, 1},
                     .strides = {kBytes, kChannels, kBytes, kBytes},
                     .box = {kChannels, kOutputs, kSteps, 1, 1}});
}

}  // namespace fathom::cuda::few_rows

namespace fathom::cuda {

bool takes_few_rows(Stored weight, int64_t inter, int64_t hidden_size) {
  constexpr int64_t kInter = few_rows::kSteps * few_rows::kChannels;
  return weight == Stored::kF8 && inter == kInter && hidden_size % kScaleBlock == 0;
}

int64_t few_rows_carried() {
  return int64_t{num_multiprocessors()} * few_rows::kWeightRows * kFewTileRows;
}

void few_rows_experts(const FewRowsArgs& args, ops::Stream& stream) {
  using namespace few_rows;
  Params params{.gate_up = gate_up_map_of(args.gate_up, args.experts, args),
                .shared_gate_up = {},
                .down = down_map(args.down, args.experts * args.hidden_size),
                .shared_down = {},
                .x = static_cast<const uint8_t*>(args.x),
                .x_stride = args.x_stride,
                .x_scale = args.x_scale,
                .gate_up_scale = args.gate_up_scale,
                .shared_gate_up_scale = args.shared_gate_up_scale,
                .down_scale = args.down_scale,
                .shared_down_scale = args.shared_down_scale,
                .tiles = args.tiles,
                .token_of_row = args.token_of_row,
                .h = args.h,
                .h_scale = args.h_scale,
                .y = args.y,
                .carried = args.carried,
                .tickets = CudaStream::of(stream).tickets(),
                .counters = args.counters,
                .most_tiles = static_cast<int>(args.most_tiles),
                .steps = static_cast<int>(args.hidden_size / kChannels),
                .inter = static_cast<int>(args.inter),
                .columns = static_cast<int>(args.inter / kTaskColumns),
                .hidden_size = static_cast<int>(args.hidden_size),
                .down_columns = static_cast<int>(args.hidden_size / kOutputs),
                .experts = static_cast<int>(args.experts)};
  if (args.shared_gate_up != nullptr) {
    params.shared_gate_up = gate_up_map_of(args.shared_gate_up, 1, args);
    params.shared_down = down_map(args.shared_down, args.hidden_size);
  }
  launch(few_rows_kernel,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kThreads,
          .shared_bytes = sizeof(Shared),
          .together = true},
         stream, params);
}

}  // namespace fathom::cuda
