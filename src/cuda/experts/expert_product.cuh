#pragma once
// The products of the experts, gate and up with SiLU or down, for few tokens in all: up to eight a group. Bound by
// reading the weights of the experts that have tokens. The inner loop is that of linear/line.cuh.
//
// Grid: blocks walk over tasks, (group of tokens of an expert, unit of rows), each over a contiguous range, because a
// group's lists take two trips to memory; a unit is kBlockWarps / warps tiles of 16 rows, of gate and of up alike.
// Shared memory: the warps' rings, two buffers of partial sums [warp, token, row], two of a group's pairs. How many
// tasks there are only the device knows.
//
// NOTE: gate_up lets the next kernel start only after its own wait, so everything before gate_up is done when down's
// blocks begin, and down reads the lists and starts on its weights before it waits.

#include <algorithm>

#include "cuda/experts/pairs.cuh"
#include "cuda/linear/product.cuh"
#include "cuda/ptx/copy.cuh"

namespace fathom::cuda {

// Where an expert's matrix begins; tile: 0 or, for up, 1.
struct ExpertMatrix {
  const char* weight;
  const float* scale;
  int64_t row_bytes;
  int scale_row;  // scales from one row, or block of rows, to the next
};
template <class W, bool kGateUp>
__device__ __forceinline__ ExpertMatrix matrix_of(const ExpertProductParams& p, int expert,
                                                  int tile) {
  constexpr bool kOfRows = kRowScales<W> || kIsI8Channels<W>;
  const int64_t in_bytes = weight_row_bytes<W>(p.in);
  const int shared = p.lists.of_pairs.shared, index = expert - p.lists.of_pairs.experts;
  const int scale_rows = kOfRows ? p.rows : scale_blocks(p.rows);
  const int scales = kIsI8Channels<W> ? 1 : p.blocks;  // of a row
  if (kGateUp || index < 0) {
    const int64_t before = index < 0 ? (kGateUp ? int64_t{expert} * 2 + tile : int64_t{expert})
                                     : int64_t{tile} * shared + index;
    const float* const scale = index < 0 ? p.w_scale : p.shared_w_scale;
    return {.weight = (index < 0 ? p.weight : p.shared_weight) + before * p.rows * in_bytes,
            .scale = kQuantisedRows<W> ? scale + before * scale_rows * scales : nullptr,
            .row_bytes = in_bytes,
            .scale_row = scales};
  }
  return {.weight = p.shared_weight + index * in_bytes,
          .scale = kQuantisedRows<W> ? p.shared_w_scale + index * scales : nullptr,
          .row_bytes = shared * in_bytes,
          .scale_row = shared * scales};
}
// Which of its scales a row has.
template <class W>
__device__ __forceinline__ int scale_index(int row) {
  return kRowScales<W> ? row : row / kScaleBlock;
}

// A finished sum of a pair and a row, its tile 0 or, for up, 1.
template <class W, bool kGateUp>
__device__ __forceinline__ float scaled_sum(const ExpertProductParams& p, int expert, int tile,
                                            int pair, int row, SumOf<W> sum) {
  if constexpr (!kIsI8Channels<W>) return sum;
  const float w_scale = matrix_of<W, kGateUp>(p, expert, tile).scale[row];
  return __fmul_rn(static_cast<float>(sum), __fmul_rn(p.x_scale[pair / p.pairs_per_row], w_scale));
}

__device__ __forceinline__ float silu(float v) { return v / (1.0f + __expf(-v)); }

template <class W, bool kAligned, bool kGateUp>
struct ExpertProduct {
  static constexpr int MT = kGateUp ? 2 : 1, NT = 1;
  using Lines = LineStream<W, MT, NT, kAligned>;
  using Source = typename Lines::Source;
  using Sum = typename Lines::Sum;
  static constexpr int kTokens = kTileTokens * NT;
  static constexpr int kPartials = kBlockWarps * kPartialFloats<MT, NT>;
  static int shared_bytes(int stages) {
    return kBlockWarps * stages * Lines::kStage + 2 * (kPartials + kTokens) * 4;
  }

  const ExpertProductParams& p;
  char* ring;
  Sum* partials;
  int* pairs;
  int begin, end, first_task = 0, end_task = 0;
  int tile_bits;  // a unit has 2^tile_bits tiles of rows

  __device__ __forceinline__ ExpertProduct(const ExpertProductParams& params, char* shared)
      : p(params) {
    const int warp = threadIdx.x / 32, mine = warp % p.warps;
    ring = shared + warp * p.stages * Lines::kStage;
    partials = reinterpret_cast<Sum*>(shared + kBlockWarps * p.stages * Lines::kStage);
    pairs = reinterpret_cast<int*>(partials + 2 * kPartials);
    tile_bits = kWarpBits + 1 - __ffs(p.warps);
    begin = mine * p.lines / p.warps;
    end = (mine + 1) * p.lines / p.warps;
  }

  // This block's range of tasks.
  __device__ __forceinline__ void find_tasks() {
    const ExpertLists& lists = p.lists;
    const int64_t groups = lists.groups == nullptr ? lists.most_groups : __ldcg(lists.num_groups);
    first_task = static_cast<int>(blockIdx.x * groups * p.units / gridDim.x);
    end_task = static_cast<int>((blockIdx.x + int64_t{1}) * groups * p.units / gridDim.x);
  }

  // A task, its group, and where this lane's part of it begins.
  struct Task {
    int task, unit, group_idx;
    ExpertGroup group;
    Source from;
  };
  __device__ __forceinline__ int first_row(int unit) const {
    return (unit << tile_bits) * kTileRows;
  }
  // The rows of the unit; those of x are the group's.
  template <bool kSources>
  __device__ __forceinline__ void find_rows(Task& at) const {
    if constexpr (!kSources) return;
    const int lane = threadIdx.x % 32;
    const int row = first_row(at.unit) + (threadIdx.x / 32 >> (kWarpBits - tile_bits)) * kTileRows;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile) {
      const ExpertMatrix from = matrix_of<W, kGateUp>(p, at.group.expert, tile);
      const int last = p.rows - 1;
      at.from.weight[tile][0] = from.weight + min(row + lane / 4, last) * from.row_bytes;
      at.from.weight[tile][1] = from.weight + min(row + lane / 4 + 8, last) * from.row_bytes;
    }
    if constexpr (Lines::kScaled) {
      constexpr int kOfTile = Lines::kScaleLanes / MT;
      const ExpertMatrix from = matrix_of<W, kGateUp>(p, at.group.expert, lane / kOfTile % MT);
      const int mine = scale_index<W>(min(row + lane % kOfTile, p.rows - 1));
      at.from.w_scale = lane < Lines::kScaleLanes ? from.scale + mine * from.scale_row : nullptr;
    }
  }
  // The group's tokens; goes on to the next group while this one has no expert.
  template <bool kSources>
  __device__ __forceinline__ void find_group(Task& at) const {
    while (at.task < end_task) {
      at.group = load_group(p.lists, at.group_idx);
      if (at.group.expert >= 0) break;
      at.task += p.units - at.unit;
      at.unit = 0;
      ++at.group_idx;
    }
    if (!kSources || at.task >= end_task) return;
    const int lane = threadIdx.x % 32;
    const auto row_of = [&](int token) {
      return int64_t{load_pair(p.lists, at.group.first + token) / p.pairs_per_row};
    };
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      const int token = column * kTileTokens + lane / 4;
      at.from.x[column] = token < at.group.count ? p.x + row_of(token) * p.x_stride_bytes : nullptr;
    }
    if constexpr (Lines::kScaled)
      at.from.x_scale =
          lane < min(kTokens, at.group.count) ? p.x_scale + row_of(lane) * p.blocks : nullptr;
  }
  template <bool kSources>
  __device__ __forceinline__ Task start() const {
    Task at{.task = first_task,
            .unit = first_task % p.units,
            .group_idx = first_task / p.units,
            .group = {},
            .from = {}};
    find_group<kSources>(at);
    if (at.task < end_task) find_rows<kSources>(at);
    return at;
  }
  template <bool kSources>
  __device__ __forceinline__ void advance(Task& at) const {
    ++at.task;
    if (++at.unit == p.units) {
      at.unit = 0;
      ++at.group_idx;
      find_group<kSources>(at);
    }
    if (at.task < end_task) find_rows<kSources>(at);
  }

  // Walks over the lines of this warp, task after task.
  struct Cursor {
    Task at;
    int line;
  };
  __device__ __forceinline__ void next_line(Cursor& cursor) const {
    if (++cursor.line < end) [[likely]]
      return;
    cursor.line = begin;
    advance<true>(cursor.at);
  }

  __device__ __forceinline__ float finished(int expert, int tile, int pair, int row,
                                            const Sum* sums, int token, int tile_row) const {
    const Sum sum = add_partials<MT, NT>(sums, p.warps, token, tile * kTileRows + tile_row);
    return scaled_sum<W, kGateUp>(p, expert, tile, pair, row, sum);
  }
  __device__ __forceinline__ void store(int expert, int pair, int row, const Sum* sums, int token,
                                        int tile_row) const {
    const int64_t at = int64_t{pair} * p.rows + row;
    const float value = finished(expert, 0, pair, row, sums, token, tile_row);
    if constexpr (!kGateUp) {
      static_cast<float*>(p.out)[at] = value;
    } else {
      const float h = silu(value) * finished(expert, 1, pair, row, sums, token, tile_row);
      if constexpr (kQuantisedRows<W>) {
        static_cast<float*>(p.out)[at] = h;
      } else {
        static_cast<Bf16*>(p.out)[at] = cuda::from_float<Bf16>(h);
      }
    }
  }

  // Both buffers alternate, so that readers of one task meet no writer of the next.
  __device__ __forceinline__ void finish(const Task& at, const Sum (&sum)[MT][NT][4], int buffer) {
    Sum* const mine = partials + buffer * kPartials;
    int* const group_pairs = pairs + buffer * kTokens;
    store_partial<MT, NT>(mine + threadIdx.x / 32 * kPartialFloats<MT, NT>, sum);
    if (static_cast<int>(threadIdx.x) < at.group.count)
      group_pairs[threadIdx.x] = load_pair(p.lists, at.group.first + static_cast<int>(threadIdx.x));
    __syncthreads();
    const int tiles = 1 << tile_bits;
    for (int i = threadIdx.x; i < tiles * at.group.count * kTileRows; i += kProductThreads) {
      const int row = i % kTileRows, tile = i / kTileRows & (tiles - 1),
                token = i / kTileRows >> tile_bits;
      const int out_row = first_row(at.unit) + tile * kTileRows + row;
      if (out_row >= p.rows) continue;
      store(at.group.expert, group_pairs[token], out_row,
            mine + tile * p.warps * kPartialFloats<MT, NT>, token, row);
    }
  }

  __device__ __forceinline__ void stream() {
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
    const int x_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
    const bool has_lists = p.lists.groups != nullptr;
    if (!has_lists) find_tasks();  // divides, which takes a while
    if constexpr (kGateUp) {
      wait_for_previous();
      let_next_start();
    }
    if (has_lists) find_tasks();
    Cursor load{.at = start<true>(), .line = begin};
    {
      Cursor early = load;
      for (int stage = 0; stage < p.stages; ++stage) {
        if (early.at.task < end_task) {
          Lines::load_weights(ring + stage * Lines::kStage, early.at.from, early.line, row_bytes,
                              p.blocks);
          next_line(early);
        }
        commit_copies();
      }
    }
    if constexpr (!kGateUp) wait_for_previous();
    for (int stage = 0; stage < p.stages; ++stage) {
      if (load.at.task < end_task) {
        Lines::load_activations(ring + stage * Lines::kStage, load.at.from, load.line, x_bytes,
                                p.blocks);
        next_line(load);
      }
      commit_copies();
    }
    char* stage = ring;
    int buffer = 0;
    for (Task at = start<false>(); at.task < end_task; advance<false>(at), buffer ^= 1) {
      Sum sum[MT][NT][4] = {};
      for (int line = begin; line < end; ++line) {
        Lines::wait(p.stages);
        Lines::multiply(stage, sum);
        if (load.at.task < end_task) {
          Lines::load_weights(stage, load.at.from, load.line, row_bytes, p.blocks);
          Lines::load_activations(stage, load.at.from, load.line, x_bytes, p.blocks);
          next_line(load);
        }
        commit_copies();
        stage = stage == ring + (p.stages - 1) * Lines::kStage ? ring : stage + Lines::kStage;
      }
      finish(at, sum, buffer);
    }
  }
};

template <class W, bool kAligned, bool kGateUp>
__global__ void __launch_bounds__(kProductThreads, kAligned ? 2 : 1)
    expert_product_kernel(const __grid_constant__ ExpertProductParams p) {
  extern __shared__ __align__(128) char shared[];
  if constexpr (!kGateUp) let_next_start();
  ExpertProduct<W, kAligned, kGateUp>(p, shared).stream();
}

template <class W, bool kAligned, bool kGateUp>
void launch_expert_product(ExpertProductParams p, ops::Stream& stream) {
  using Kernel = ExpertProduct<W, kAligned, kGateUp>;
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.blocks = static_cast<int>(num_tiles(p.in, kScaleBlock));
  p.warps = warps_for(p.lines);
  p.units = static_cast<int>(num_tiles(p.rows, kTileRows * (kBlockWarps / p.warps)));
  const int64_t tasks = int64_t{p.lists.most_groups} * p.units;
  // Two blocks find room with two stages, but for i4's, whose lines have more channels.
  constexpr bool kHasRoomForTwo = kQuantisedRows<W> && !kIsI4<W>, kIsBf16 = std::is_same_v<W, Bf16>;
  // Of bf16 so for a few pairs, whose blocks end their tasks by turns.
  const bool has_room_for_two = kHasRoomForTwo || (kIsBf16 && p.lists.groups == nullptr);
  p.stages = p.chosen_stages > 0                                 ? p.chosen_stages
             : has_room_for_two && tasks > num_multiprocessors() ? 2
                                                                 : 4;
  constexpr int kMostResident = kAligned ? 2 : 1;  // registers
  const int per_multiprocessor =
      std::clamp((227 << 10) / (Kernel::shared_bytes(p.stages) + 1024), 1, kMostResident);
  const int64_t resident = int64_t{num_multiprocessors()} * per_multiprocessor;
  launch(expert_product_kernel<W, kAligned, kGateUp>,
         {.grid = static_cast<unsigned>(std::min(tasks, resident)),
          .block = kProductThreads,
          .shared_bytes = Kernel::shared_bytes(p.stages)},
         stream, p);
}

}  // namespace fathom::cuda
