#include "cuda/gemm/few_rows_bf16.h"

#include "cuda/device/convert.cuh"
#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/few_rows_store.cuh"
#include "cuda/gemm/gate_up_map.h"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/stage_ring.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

// Persistent, warp-specialised: a thread loads weights by TMA, four warps copy rows, two warpgroups multiply (wgmma)
// with the weights as the instruction's 64 rows and tokens as its columns. Bound by memory: each expert's weights are
// read once, and weights of down are under way while gate and up end.
//
// A task is a tile of rows and 128 rows of the weight: of down as they lie, of gate and up eight rows of each in turn,
// so that both of a column are one thread's. A stage is 64 channels. k rises, as in product_kernel.cuh.
//
// Tasks are handed out, those of gate and up first, and done in the order in which they were taken. Who has one of down
// waits for rows of h that blocks already compute, so blocks need not run all at once.
//
// Grid: all multiprocessors. Shared memory: stages of 24 KB, of which 16 are weights.

namespace fathom::cuda {
namespace {

using tensor::Bf16;

constexpr int kWeightRows = 128, kGroupRows = kGateUpGroupRows, kGroups = kWeightRows / kGroupRows;
constexpr int kMultiplyingThreads = 256, kCopyingThreads = 128;
constexpr int kFewThreads = kMultiplyingThreads + kCopyingThreads + 32;
constexpr int kMultiplyBarrier = 1;
// Columns of out that a task makes.
template <bool kGated>
constexpr int kTaskColumns = kGated ? kWeightRows / 2 : kWeightRows;
constexpr int kChannels = 64, kRowBytes = kChannels * 2;  // of a stage

// What a task is of, and where. No rows: there are no more tasks.
struct Task {
  GroupTile tile;
  int tile_index, column;
  bool gated;
};

struct FewRowsShared {
  static constexpr int kStages = 9;
  struct Stage {
    uint8_t weights[kWeightRows][kRowBytes];
    uint8_t tokens[kFewTileRows][kRowBytes];
  };
  // Who loads is a ring of stages ahead, and a task has one at least: nobody waits for room here.
  struct Tasks {
    static constexpr int kStages = FewRowsShared::kStages + 2;
    using Stage = Task;
    Task stages[kStages];
    uint64_t full[kStages];
  };
  Stage stages[kStages];
  uint64_t full[kStages], empty[kStages];
  Tasks tasks;
};
static_assert(sizeof(FewRowsShared) <= (227 << 10));

struct FewRowsParams {
  CUtensorMap gate_up, shared_gate_up;  // gate_up_map.h
  CUtensorMap down, shared_down;        // boxes of 128 rows and 64 channels
  FewRowsBf16Args of;

  __device__ __forceinline__ int columns(bool gated) const {
    return static_cast<int>(gated ? of.inter / kTaskColumns<true>
                                  : of.hidden_size / kTaskColumns<false>);
  }
  __device__ __forceinline__ int steps(bool gated) const {
    return static_cast<int>((gated ? of.hidden_size : of.inter) / kChannels);
  }
};

using FewRowsRing = StageRing<FewRowsShared>;
using TaskRing = StageRing<FewRowsShared::Tasks>;

__device__ __forceinline__ Task next_task(TaskRing& tasks) {
  barrier_wait(tasks.full(), tasks.parity);
  const Task task = *tasks;
  tasks.advance();
  return task;
}

// One thread: takes tasks and loads their weights.
struct WeightsLoader {
  const FewRowsParams& p;
  FewRowsShared& shared;
  FewRowsRing ring{shared};

  // The last tiles first: the shared experts', which have the most rows.
  __device__ __forceinline__ Task task_of(int number, int tiles) const {
    const int gated = tiles * p.columns(true);
    if (number >= gated + tiles * p.columns(false)) return {};
    const bool is_gated = number < gated;
    const int columns = p.columns(is_gated), place = is_gated ? number : number - gated;
    const int tile = tiles - 1 - place / columns;
    return {.tile = p.of.tiles.tiles[tile],
            .tile_index = tile,
            .column = place % columns,
            .gated = is_gated};
  }
  __device__ __forceinline__ void load_stage(const Task& task, int k) const {
    const int part = task.tile.group - static_cast<int>(p.of.experts);  // of the shared experts
    const bool is_shared = part >= 0;
    const uint32_t to = shared_address((*ring).weights);
    barrier_expect(ring.full(), sizeof((*ring).weights));
    if (task.gated) {
      const int groups =
          static_cast<int>(p.of.inter) / kGroupRows * max(part, 0) + task.column * (kGroups / 2);
      load_tile(is_shared ? &p.shared_gate_up : &p.gate_up, to, ring.full(),
                {k * kRowBytes, 0, 0, groups, is_shared ? 0 : task.tile.group});
    } else {
      load_tile(is_shared ? &p.shared_down : &p.down, to, ring.full(),
                (p.steps(false) * max(part, 0) + k) * kChannels,
                static_cast<int>(p.of.hidden_size) * (is_shared ? 0 : task.tile.group) +
                    task.column * kWeightRows);
    }
  }
  __device__ __forceinline__ void run() {
    TaskRing tasks{shared.tasks};
    int* const counter = p.of.counters + p.of.most_tiles;
    const int tiles = *p.of.tiles.count, first = atomicAdd(counter, 2);
    int next = first + 1;
    Task task = task_of(first, tiles);
    for (;; tasks.advance()) {
      *tasks = task;
      barrier_arrive(tasks.full());
      if (task.tile.num_rows == 0) return;
      const Task following = task_of(next, tiles);
      next = atomicAdd(counter, 1);
      for (int k = 0; k < p.steps(task.gated); ++k, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        load_stage(task, k);
      }
      task = following;
    }
  }
};

// Four warps: as boxes of a row the copy engine was late. Swizzled as it does.
struct RowsCopier {
  static constexpr int kPieces = kRowBytes / 16, kApart = kCopyingThreads / kPieces;
  static constexpr int kRows = kFewTileRows / kApart;  // of a thread

  const FewRowsParams& p;
  FewRowsShared& shared;
  FewRowsRing ring{shared};
  int thread = static_cast<int>(threadIdx.x) - kMultiplyingThreads;
  int first = thread / kPieces, piece = thread % kPieces;

  __device__ __forceinline__ void wait_for_h(int tile) const {
    const int* const counter = p.of.counters + tile;
    int columns;
    do {
      asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(columns) : "l"(counter) : "memory");
    } while (columns < p.columns(true));
  }
  // Null: no row.
  __device__ __forceinline__ const char* row_of(const Task& task, int row) const {
    if (row >= task.tile.num_rows) return nullptr;
    const int64_t at = task.tile.row + row;
    const Bf16* const from =
        task.gated ? p.of.x + p.of.token_of_row[at] * p.of.x_stride : p.of.h + at * p.of.inter;
    return reinterpret_cast<const char*>(from) + piece * 16;
  }
  __device__ __forceinline__ void run() {
    TaskRing tasks{shared.tasks};
    for (;;) {
      const Task task = next_task(tasks);
      if (task.tile.num_rows == 0) return;
      if (!task.gated) wait_for_h(task.tile_index);
      const char* from[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) from[i] = row_of(task, i * kApart + first);
      for (int k = 0; k < p.steps(task.gated); ++k, ring.advance()) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (i * kApart >= task.tile.num_rows) break;
          const int row = i * kApart + first;
          if (from[i] != nullptr)
            copy_async_16(shared_address((*ring).tokens[row]) + (piece ^ row % 8) * 16,
                          from[i] + k * kRowBytes, true);
        }
        barrier_arrive_after_copies(ring.full());
      }
    }
  }
};

// This lane has column `at` of two neighbouring rows of out, and another lane the column beside it: each stores both
// columns of one row.
__device__ __forceinline__ void store_two(Bf16* out, int64_t n, const GroupTile& tile, int row,
                                          int at, float first, float second) {
  const bool odd = at % 2 != 0;
  const float other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
  const int mine = row + (odd ? 1 : 0);
  if (mine < tile.num_rows)
    *reinterpret_cast<uint32_t*>(out + (tile.row + mine) * n + at / 2 * 2) =
        odd ? floats_to_bf16x2(other, second) : floats_to_bf16x2(first, other);
}

// Up to kTokens rows.
template <bool kGated, int kTokens>
__device__ __forceinline__ void multiply_task(const FewRowsParams& p, FewRowsRing& ring,
                                              const Task& task) {
  constexpr int kSums = kTokens / 2;  // of a thread
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kSums];
  for (int k = 0; k < p.steps(kGated); ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    show_to_engines();  // what threads copied
    const uint32_t a = descriptor_word(shared_address((*ring).weights[warp / 4 * 64]));
    const uint32_t b = descriptor_word(shared_address((*ring).tokens));
    mma_begin(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), k > 0 || i > 0, Bf16{});
    mma_commit();
    mma_wait<0>(sums);
    if (lane == 0) barrier_arrive(ring.empty());
  }
  const int column = task.column * kTaskColumns<kGated> + warp * (kTaskColumns<kGated> / 8);
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    if constexpr (kGated) {
      store_two(p.of.h, p.of.inter, task.tile, i * 2 + lane % 4 * 2, column + lane / 4,
                silu_mul(sums[i], sums[i + 2]), silu_mul(sums[i + 1], sums[i + 3]));
    } else {
      store_columns(p.of.y + (int64_t{task.tile.row} + i * 2) * p.of.hidden_size + column,
                    p.of.hidden_size, task.tile.num_rows - i * 2,
                    {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]});
    }
  }
  if constexpr (kGated) {
    __threadfence();
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
    if (threadIdx.x == 0) atomicAdd(p.of.counters + task.tile_index, 1);
    __syncwarp();
  }
}

template <int kTokens>
__device__ __forceinline__ void multiply_rows(const FewRowsParams& p, FewRowsRing& ring,
                                              const Task& task) {
  task.gated ? multiply_task<true, kTokens>(p, ring, task)
             : multiply_task<false, kTokens>(p, ring, task);
}
__device__ __forceinline__ void multiply_all(const FewRowsParams& p, FewRowsShared& shared) {
  FewRowsRing ring{shared};
  TaskRing tasks{shared.tasks};
  for (Task task = next_task(tasks); task.tile.num_rows > 0; task = next_task(tasks)) {
    const int rows = task.tile.num_rows;
    rows <= 16   ? multiply_rows<16>(p, ring, task)
    : rows <= 32 ? multiply_rows<32>(p, ring, task)
                 : multiply_rows<64>(p, ring, task);
  }
}

__global__ void __launch_bounds__(kFewThreads, 1)
    few_rows_bf16_kernel(const __grid_constant__ FewRowsParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  FewRowsShared& shared = *reinterpret_cast<FewRowsShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    prefetch_map(&p.gate_up), prefetch_map(&p.down);
    for (int i = 0; i < FewRowsShared::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1 + kCopyingThreads);
      barrier_init(shared_address(&shared.empty[i]), kMultiplyingThreads / 32);
    }
    for (uint64_t& full : shared.tasks.full) barrier_init(shared_address(&full), 1);
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < kMultiplyingThreads) return multiply_all(p, shared);
  if (threadIdx.x < kMultiplyingThreads + kCopyingThreads) return RowsCopier{p, shared}.run();
  if (threadIdx.x == kMultiplyingThreads + kCopyingThreads) WeightsLoader{p, shared}.run();
}

CUtensorMap down_map(const Bf16* weight, int64_t rows, int64_t channels) {
  return tensor_map({.data = weight,
                     .dtype = tensor::DType::kBf16,
                     .rows = rows,
                     .columns = channels,
                     .stride = channels},
                    kWeightRows);
}

}  // namespace

bool takes_few_rows_bf16(Stored weight, int64_t inter, int64_t hidden_size) {
  return weight == Stored::kBf16 && inter % kChannels == 0 && hidden_size % kWeightRows == 0;
}

void few_rows_bf16(const FewRowsBf16Args& args, ops::Stream& stream) {
  const int64_t inter = args.inter, rows = args.hidden_size;
  const int64_t row_bytes = args.hidden_size * static_cast<int64_t>(sizeof(Bf16));
  constexpr int kColumns = kTaskColumns<true>;
  FewRowsParams params{
      .gate_up = gate_up_map({args.gate_up, args.experts, inter, row_bytes}, kColumns),
      .shared_gate_up = {},
      .down = down_map(args.down, args.experts * rows, inter),
      .shared_down = {},
      .of = args};
  if (args.shared > 0) {
    const int64_t wide = args.shared * inter;
    params.shared_gate_up = gate_up_map({args.shared_gate_up, 1, wide, row_bytes}, kColumns);
    params.shared_down = down_map(args.shared_down, rows, wide);
  }
  launch(few_rows_bf16_kernel,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kFewThreads,
          .shared_bytes = sizeof(FewRowsShared)},
         stream, params);
}

}  // namespace fathom::cuda
