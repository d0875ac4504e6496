#pragma once
// The products of the experts, gate and up with SiLU or down, for groups of up to 32 tokens. The warps of a block have
// rows of their own and share the tokens, so a group's activations pass once for 64 or 128 rows of the weights. A warp
// goes through the parts of the inner dimension that expert_product.cuh gives to the warps of a block and adds their
// sums in the same order, so rows have the same bits.
//
// Grid: two blocks a multiprocessor walk over tasks, (group, unit of rows), each over a contiguous range. Shared
// memory: stages of lines, [warp] pieces of weights, then the tokens' pieces, then scales. While a task's last line is
// multiplied, the next one's are under way.
//
// NOTE: gate_up lets the next kernel start only after its own wait; see expert_product.cuh.

#include "cuda/experts/expert_product.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

template <class W, bool kGateUp>
struct WideExperts {
  static constexpr int kWarps = 4, kColumns = kWideGroup / kTileTokens, kStages = 4;
  static constexpr int kThreads = kWarps * 32, kResident = 2;
  // Two tiles of rows a warp: of gate and of up, or two of down.
  static constexpr int kWarpRows = kGateUp ? kTileRows : 2 * kTileRows;
  static constexpr int kUnitRows = kWarps * kWarpRows;
  using Lines = LineStream<W, 2, kColumns, true>;
  static constexpr int kWarpWeights = 2 * Lines::kTileBytes, kWeights = kWarps * kWarpWeights;
  static constexpr int kScales = kWeights + kColumns * Lines::kColumnBytes;
  static constexpr int kWarpScales = kRowScales<W> ? Lines::kWeightScaleBytes : 16;
  static constexpr int kStage =
      kScales + (Lines::kScaled ? kWarps * kWarpScales + kWideGroup * 4 * Lines::kBlocks : 0);
  static constexpr int kSharedBytes = kStages * kStage;
  using Sum = typename Lines::Sum;
  using Sums = Sum[2][kColumns][4];

  const ExpertProductParams& p;
  char* shared;
  int first_task, end_task;

  __device__ __forceinline__ WideExperts(const ExpertProductParams& params, char* shared_memory)
      : p(params), shared(shared_memory) {}

  __device__ __forceinline__ void find_tasks() {
    const int64_t tasks = int64_t{__ldcg(p.lists.num_groups)} * p.units;
    first_task = static_cast<int>(blockIdx.x * tasks / gridDim.x);
    end_task = static_cast<int>((blockIdx.x + int64_t{1}) * tasks / gridDim.x);
  }

  struct Task {
    int task, unit, group_idx;
    ExpertGroup group;
  };
  __device__ __forceinline__ Task first() const {
    Task at{.task = first_task,
            .unit = first_task % p.units,
            .group_idx = first_task / p.units,
            .group = {}};
    if (first_task < end_task) at.group = load_group(p.lists, at.group_idx);
    return at;
  }
  // Whether there is another group.
  __device__ __forceinline__ bool advance(Task& at) const {
    ++at.task;
    if (++at.unit < p.units) return false;
    at.unit = 0;
    ++at.group_idx;
    if (at.task >= end_task) return false;
    at.group = load_group(p.lists, at.group_idx);
    return true;
  }
  __device__ __forceinline__ int first_row(const Task& at) const {
    return at.unit * kUnitRows + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  }

  // Walks over lines, task after task, with where this thread's part of them begins.
  struct Cursor {
    Task at;
    int line;
    const char* weight[2][2];
    const float* w_scale;
    const char* x[kColumns * Lines::kPiecesX /
                  kWarps];  // this thread's pieces of the tokens, null = no token
    const float* x_scale;
  };
  __device__ __forceinline__ void find_rows(Cursor& to) const {
    const int lane = threadIdx.x % 32, row = first_row(to.at), last = p.rows - 1;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const ExpertMatrix from = matrix_of<W, kGateUp>(p, to.at.group.expert, tile);
      const int mine = row + lane / 4 + (kGateUp ? 0 : tile * kTileRows);
      to.weight[tile][0] = from.weight + min(mine, last) * from.row_bytes;
      to.weight[tile][1] = from.weight + min(mine + 8, last) * from.row_bytes;
    }
    if constexpr (Lines::kScaled) {
      constexpr int kOfTile = Lines::kScaleLanes / 2;
      const int tile = lane / kOfTile % 2;
      const ExpertMatrix from = matrix_of<W, kGateUp>(p, to.at.group.expert, tile);
      const int mine = row + (kGateUp ? 0 : tile * kTileRows) + lane % kOfTile;
      const int index = scale_index<W>(min(mine, last));
      to.w_scale = lane < Lines::kScaleLanes ? from.scale + index * from.scale_row : nullptr;
    }
  }
  __device__ __forceinline__ void find_tokens(Cursor& to) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const ExpertGroup& group = to.at.group;
    const auto row_of = [&](int token) {
      return int64_t{load_pair(p.lists, group.first + token) / p.pairs_per_row};
    };
#pragma unroll
    for (int i = 0; i < kColumns * Lines::kPiecesX / kWarps; ++i) {
      const int slot = i * kWarps + warp, token = slot / Lines::kPiecesX * kTileTokens + lane / 4;
      to.x[i] = token < group.count ? p.x + row_of(token) * p.x_stride_bytes : nullptr;
    }
    if constexpr (Lines::kScaled) {
      const int token = static_cast<int>(threadIdx.x);
      to.x_scale = token < group.count ? p.x_scale + row_of(token) * p.blocks : nullptr;
    }
  }
  __device__ __forceinline__ Cursor start() const {
    Cursor cursor{.at = first(), .line = 0, .weight = {}, .w_scale = {}, .x = {}, .x_scale = {}};
    if (first_task < end_task) find_rows(cursor), find_tokens(cursor);
    return cursor;
  }
  __device__ __forceinline__ void next_line(Cursor& cursor) const {
    if (++cursor.line < p.lines) return;
    cursor.line = 0;
    if (advance(cursor.at)) find_tokens(cursor);
    if (cursor.at.task < end_task) find_rows(cursor);
  }

  __device__ __forceinline__ void load_weights(char* stage, const Cursor& from) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
      Lines::load_tile(stage + warp * kWarpWeights + tile * Lines::kTileBytes, from.weight[tile],
                       from.line, row_bytes);
    if constexpr (Lines::kScaled) {
      if (from.w_scale != nullptr)
        Lines::load_scales(stage + kScales + warp * kWarpScales + lane * 4 * Lines::kBlocks,
                           from.w_scale, from.line, p.blocks);
    }
  }
  __device__ __forceinline__ void load_tokens(char* stage, const Cursor& from) const {
    using X = typename Lines::X;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_bytes = p.in * static_cast<int>(sizeof(X));
#pragma unroll
    for (int i = 0; i < kColumns * Lines::kPiecesX / kWarps; ++i) {
      const int slot = i * kWarps + warp;
      if (from.x[i] == nullptr) continue;
      const int offset =
          from.line * Lines::kLineX + Lines::token_offset(lane % 4, slot % Lines::kPiecesX);
      copy_piece<X, Lines::kPieceX, true>(stage + kWeights + slot * 512 + lane * 16, from.x[i],
                                          offset, row_bytes);
    }
    if constexpr (Lines::kScaled) {
      if (from.x_scale != nullptr)
        Lines::load_scales(
            stage + kScales + kWarps * kWarpScales + threadIdx.x * 4 * Lines::kBlocks, from.x_scale,
            from.line, p.blocks);
    }
  }

  // What sums are multiplied with when they are stored, i8 with scales of channels only: of this thread's rows and
  // tokens.
  struct OutScales {
    float rows[2][2], tokens[kColumns][2];
    __device__ __forceinline__ float value(Sum sum, int tile, int i) const {
      if constexpr (!kIsI8Channels<W>) return sum;
      return __fmul_rn(static_cast<float>(sum),
                       __fmul_rn(tokens[i / 4][i % 2], rows[tile][i % 4 / 2]));
    }
  };
  __device__ __forceinline__ void find_scales(const Task& at, const int (&pairs)[kColumns][2],
                                              OutScales& to) const {
    if constexpr (!kIsI8Channels<W>) return;
    const int row = first_row(at) + static_cast<int>(threadIdx.x) % 32 / 4, last = p.rows - 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int tile = i / 2, mine = row + i % 2 * 8 + (kGateUp ? 0 : tile * kTileRows);
      to.rows[tile][i % 2] =
          __ldg(matrix_of<W, kGateUp>(p, at.group.expert, tile).scale + min(mine, last));
    }
#pragma unroll
    for (int i = 0; i < kColumns * 2; ++i) {
      const int pair = pairs[i / 2][i % 2];
      to.tokens[i / 2][i % 2] = pair < 0 ? 0.0f : __ldcg(p.x_scale + pair / p.pairs_per_row);
    }
  }

  // The sums are in registers: gate and up of a row are one thread's.
  __device__ __forceinline__ void store(const Task& at, const int (&pairs)[kColumns][2],
                                        const OutScales& scales, const Sums& sum) const {
    const int row = first_row(at) + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < kColumns * 4; ++i) {
      const int column = i / 4, pair = pairs[column][i % 2], mine = row + i % 4 / 2 * 8;
      if (pair < 0) continue;
      const int64_t to = int64_t{pair} * p.rows + mine;
      const float a = scales.value(sum[0][column][i % 4], 0, i),
                  b = scales.value(sum[1][column][i % 4], 1, i);
      if constexpr (!kGateUp) {
        if (mine < p.rows) static_cast<float*>(p.out)[to] = a;
        if (mine + kTileRows < p.rows) static_cast<float*>(p.out)[to + kTileRows] = b;
      } else if (mine < p.rows) {
        const float h = silu(a) * b;
        if constexpr (kQuantisedRows<W>) {
          static_cast<float*>(p.out)[to] = h;
        } else {
          static_cast<Bf16*>(p.out)[to] = cuda::from_float<Bf16>(h);
        }
      }
    }
  }

  // The pairs whose sums this thread has, -1 = none.
  __device__ __forceinline__ void find_pairs(const ExpertGroup& group,
                                             int (&pairs)[kColumns][2]) const {
#pragma unroll
    for (int i = 0; i < kColumns * 2; ++i) {
      const int token = i / 2 * kTileTokens + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
      pairs[i / 2][i % 2] = token < group.count ? load_pair(p.lists, group.first + token) : -1;
    }
  }

  __device__ __forceinline__ int part_end(int part) const { return (part + 1) * p.lines / p.warps; }

  // A part's sums to the total, which the first one starts.
  static __device__ __forceinline__ void add_part(Sums& total, Sums& sum, bool is_first) {
#pragma unroll
    for (int i = 0; i < 2 * kColumns * 4; ++i) {
      Sum& all = total[i / (kColumns * 4)][i / 4 % kColumns][i % 4];
      Sum& mine = sum[i / (kColumns * 4)][i / 4 % kColumns][i % 4];
      all = is_first ? mine : all + mine;
      mine = 0;
    }
  }

  // Puts the first lines under way.
  __device__ __forceinline__ Cursor fill() const {
    Cursor load = start(), early = load;
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (early.at.task >= end_task) break;
      load_weights(shared + stage * kStage, early);
      next_line(early);
    }
    if constexpr (!kGateUp) wait_for_previous();
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (load.at.task < end_task) {
        load_tokens(shared + stage * kStage, load);
        next_line(load);
      }
      commit_copies();
    }
    return load;
  }

  __device__ __forceinline__ void stream() {
    if constexpr (kGateUp) {
      wait_for_previous();
      let_next_start();
    }
    find_tasks();
    Cursor load = fill();
    const int warp = threadIdx.x / 32;
    int slot = 0, pairs[kColumns][2];
    Task at = first();
    if (at.task < end_task) find_pairs(at.group, pairs);
    while (at.task < end_task) {
      OutScales scales;
      find_scales(at, pairs, scales);
      Sums total, sum = {};
      const int columns = (at.group.count + kTileTokens - 1) / kTileTokens;
      int part = 0;
      for (int line = 0; line < p.lines; ++line) {
        wait_copies<kStages - 2>();
        __syncthreads();  // this line is there for all, and nobody reads the one before
        if (load.at.task < end_task) {
          char* const to = shared + (slot + kStages - 1) % kStages * kStage;
          load_weights(to, load);
          load_tokens(to, load);
          next_line(load);
        }
        commit_copies();
        const char* const stage = shared + slot * kStage;
        Lines::multiply(stage + warp * kWarpWeights, stage + kWeights,
                        stage + kScales + warp * kWarpScales,
                        stage + kScales + kWarps * kWarpScales, sum, columns);
        slot = (slot + 1) % kStages;
        if (line + 1 < part_end(part)) continue;
        add_part(total, sum, part == 0);
        ++part;
      }
      store(at, pairs, scales, total);
      if (advance(at)) find_pairs(at.group, pairs);
    }
  }
};

template <class W, bool kGateUp>
__global__ void __launch_bounds__(WideExperts<W, kGateUp>::kThreads,
                                  WideExperts<W, kGateUp>::kResident)
    wide_experts_kernel(const __grid_constant__ ExpertProductParams p) {
  extern __shared__ __align__(128) char shared[];
  if constexpr (!kGateUp) let_next_start();
  WideExperts<W, kGateUp>(p, shared).stream();
}

template <class W, bool kGateUp>
void launch_wide_experts(ExpertProductParams p, ops::Stream& stream) {
  using Kernel = WideExperts<W, kGateUp>;
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.blocks = static_cast<int>(num_tiles(p.in, kScaleBlock));
  p.warps = warps_for(p.lines);
  p.units = static_cast<int>(num_tiles(p.rows, Kernel::kUnitRows));
  const int64_t tasks = int64_t{p.lists.most_groups} * p.units;
  const int64_t resident = int64_t{num_multiprocessors()} * Kernel::kResident;
  launch(wide_experts_kernel<W, kGateUp>,
         {.grid = static_cast<unsigned>(std::min(tasks, resident)),
          .block = Kernel::kThreads,
          .shared_bytes = Kernel::kSharedBytes},
         stream, p);
}

// gate_up or down of groups, by their size and whether rows are aligned.
template <class W, bool kGateUp>
void run_groups(const ExpertProductParams& params, ops::Stream& stream) {
  if (!params.is_aligned) return launch_expert_product<W, false, kGateUp>(params, stream);
  if (params.lists.group_tokens == kNarrowGroup)
    return launch_expert_product<W, true, kGateUp>(params, stream);
  launch_wide_experts<W, kGateUp>(params, stream);
}

}  // namespace fathom::cuda
