#pragma once
// gate and up with SiLU of a few tokens, whose pairs are groups by themselves. A tile has 8 rows of gate and the same 8
// of up: blocks of half the rows fill the GPU evenly, and their warps, which wait for their own copies, are twice as
// many. The sums are those of ExpertProduct, to the bit. Bound by reading the weights of the experts.
//
// Grid: (units of kBlockWarps / warps tiles, pairs). Pairs of shared experts come first and read weights before the
// wait, all others find their addresses but for the expert. Shared memory: the warps' rings, then partial sums
// [warp, row].
//
// NOTE: as of expert_product.cuh the next kernel starts only after this one's wait.

#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <class W>
struct GateUpPairs {
  using Lines = LineStream<W, 1, 1, true, true, true>;
  using Source = typename Lines::Source;
  static constexpr int kRows = kTileRows / 2;  // of either matrix
  // Of bf16 a fourth would leave a multiprocessor room for three blocks instead of four.
  static constexpr int kMostStages = kQuantisedRows<W> ? 4 : 3;
  static int shared_bytes(int stages) {
    return kBlockWarps * (stages * Lines::kStage + kTileRows * static_cast<int>(sizeof(float)));
  }

  const ExpertProductParams& p;
  char* shared;
  int pair, token, j, begin, end, tiles, first_row;

  __device__ __forceinline__ GateUpPairs(const ExpertProductParams& params, char* shared_memory)
      : p(params), shared(shared_memory) {
    const int warp = threadIdx.x / 32, part = warp % p.warps;
    pair = static_cast<int>(blockIdx.y);
    token = pair / p.pairs_per_row;
    j = pair - token * p.pairs_per_row;
    begin = part * p.lines / p.warps;
    end = (part + 1) * p.lines / p.warps;
    tiles = kBlockWarps / p.warps;
    first_row = (static_cast<int>(blockIdx.x) * tiles + warp / p.warps) * kRows;
  }

  __device__ __forceinline__ bool is_shared() const { return j < p.lists.of_pairs.shared; }

  // Of the pair's expert if it is a shared one, else of expert 0.
  __device__ __forceinline__ Source source() const {
    const int lane = threadIdx.x % 32, last = p.rows - 1;
    const int expert = is_shared() ? p.lists.of_pairs.experts + j : 0;
    Source from;
    const int row = min(first_row + lane / 4, last);
#pragma unroll
    for (int matrix = 0; matrix < 2; ++matrix) {
      const ExpertMatrix rows = matrix_of<W, true>(p, expert, matrix);
      from.weight[0][matrix] = rows.weight + row * rows.row_bytes;
    }
    from.x[0] = lane < 4 ? p.x + token * p.x_stride_bytes : nullptr;
    if constexpr (Lines::kScaled) {
      const int tile_row = lane * Lines::kRowsOfScale;
      const ExpertMatrix rows = matrix_of<W, true>(p, expert, tile_row / kRows % 2);
      const int index = scale_index<W>(min(first_row + tile_row % kRows, last));
      from.w_scale = lane < Lines::kScaleLanes ? rows.scale + index * rows.scale_row : nullptr;
      from.x_scale = lane == 0 ? p.x_scale + int64_t{token} * p.blocks : nullptr;
    }
    return from;
  }

  // From expert 0 to a routed one.
  __device__ __forceinline__ void move(Source& from, int expert) const {
    const int64_t matrix_bytes = int64_t{p.rows} * weight_row_bytes<W>(p.in);
#pragma unroll
    for (int matrix = 0; matrix < 2; ++matrix) from.weight[0][matrix] += expert * 2 * matrix_bytes;
    if constexpr (Lines::kScaled) {
      const int scale_rows = kRowScales<W> ? p.rows : scale_blocks(p.rows);
      if (from.w_scale != nullptr) from.w_scale += int64_t{expert} * 2 * scale_rows * p.blocks;
    }
  }

  // Returns whether the pair has an expert here.
  __device__ __forceinline__ bool stream(float (&sum)[1][1][4]) const {
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
    const int x_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
    char* const ring = shared + threadIdx.x / 32 * p.stages * Lines::kStage;
    const bool is_known = is_shared();
    Source from = source();
    if (is_known) {
      for (int stage = 0; stage < p.stages; ++stage) {
        if (begin + stage < end)
          Lines::load_weights(ring + stage * Lines::kStage, from, begin + stage, row_bytes,
                              p.blocks);
        commit_copies();
      }
    }
    wait_for_previous();
    let_next_start();
    if (!is_known) {
      const int expert = expert_of_routed(p.lists.of_pairs, token, j - p.lists.of_pairs.shared);
      if (expert < 0) return false;
      move(from, expert);
    }
    for (int stage = 0; stage < p.stages; ++stage) {
      if (begin + stage < end) {
        char* const to = ring + stage * Lines::kStage;
        if (!is_known) Lines::load_weights(to, from, begin + stage, row_bytes, p.blocks);
        Lines::load_activations(to, from, begin + stage, x_bytes, p.blocks);
      }
      commit_copies();
    }
    char* stage = ring;
    for (int line = begin; line < end; ++line) {
      Lines::wait(p.stages);
      Lines::multiply(stage, sum);
      if (line + p.stages < end) {
        Lines::load_weights(stage, from, line + p.stages, row_bytes, p.blocks);
        Lines::load_activations(stage, from, line + p.stages, x_bytes, p.blocks);
      }
      commit_copies();
      stage = stage == ring + (p.stages - 1) * Lines::kStage ? ring : stage + Lines::kStage;
    }
    return true;
  }

  // In the order of the warps.
  __device__ __forceinline__ float add_up(const float* partials) const {
    float each[kBlockWarps];  // loaded beside each other
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp)
      each[warp] = warp < p.warps ? partials[warp * kTileRows] : 0;
    float sum = each[0];
#pragma unroll
    for (int warp = 1; warp < kBlockWarps; ++warp)
      if (warp < p.warps) sum += each[warp];
    return sum;
  }

  __device__ __forceinline__ void finish(const float (&sum)[1][1][4]) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* const partials =
        reinterpret_cast<float*>(shared + kBlockWarps * p.stages * Lines::kStage);
    if (lane % 4 == 0) {  // the token is the first column
      partials[warp * kTileRows + lane / 4] = sum[0][0][0];
      partials[warp * kTileRows + kRows + lane / 4] = sum[0][0][2];
    }
    __syncthreads();
    const int i = static_cast<int>(threadIdx.x), tile = i / kRows;
    const int row = static_cast<int>(blockIdx.x) * tiles * kRows + i;
    if (tile >= tiles || row >= p.rows) return;
    const float* const mine = partials + tile * p.warps * kTileRows + i % kRows;
    const float h = silu(add_up(mine)) * add_up(mine + kRows);
    const int64_t at = int64_t{pair} * p.rows + row;
    if constexpr (kQuantisedRows<W>) {
      static_cast<float*>(p.out)[at] = h;
    } else {
      static_cast<Bf16*>(p.out)[at] = cuda::from_float<Bf16>(h);
    }
  }
};

template <class W>
__global__ void __launch_bounds__(kProductThreads, 4)
    gate_up_pairs_kernel(const __grid_constant__ ExpertProductParams p) {
  extern __shared__ __align__(128) char shared[];
  const GateUpPairs<W> gate_up(p, shared);
  float sum[1][1][4] = {};
  const bool has_expert = gate_up.stream(sum);
  if (has_expert) gate_up.finish(sum);
}

template <class W>
void launch_gate_up_pairs(ExpertProductParams p, ops::Stream& stream) {
  using Kernel = GateUpPairs<W>;
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.blocks = static_cast<int>(num_tiles(p.in, kScaleBlock));
  p.warps = warps_for(p.lines);
  p.units = static_cast<int>(num_tiles(p.rows, Kernel::kRows * (kBlockWarps / p.warps)));
  p.stages = stages_for(num_tiles(p.lines, p.warps),
                        p.chosen_stages > 0 ? p.chosen_stages : Kernel::kMostStages);
  launch(gate_up_pairs_kernel<W>,
         {.grid = dim3(static_cast<unsigned>(p.units), static_cast<unsigned>(p.lists.most_groups)),
          .block = kProductThreads,
          .shared_bytes = Kernel::shared_bytes(p.stages)},
         stream, p);
}

// Pairs that are groups by themselves, of bf16 those of one token, and groups of any size.
template <class W>
void run_pairs_or_groups(const ExpertProductParams& params, ops::Stream& stream) {
  const bool is_one_token = params.lists.most_groups == params.pairs_per_row;
  if (params.lists.groups == nullptr && (kQuantisedRows<W> || is_one_token))
    return launch_gate_up_pairs<W>(params, stream);
  run_groups<W, true>(params, stream);
}

}  // namespace fathom::cuda
