#pragma once
// down of a few tokens with the weighted sum over their experts: a block owns 16 rows of a token's output and streams
// the matching rows of all its experts, so no result waits in memory. The sums are those of ExpertProduct, to the bit.
//
// Grid: (tiles of 16 rows, tokens). Warp w has the part w % warps of the inner dimension, of the experts
// j = w / warps, + kBlockWarps / warps, ... Shared memory: the warps' rings, partial sums [j, part, row], results
// [j, row].

#include "cuda/experts/expert_product.cuh"

namespace fathom::cuda {

template <class W>
struct DownAndCombine {
  using Lines = LineStream<W, 1, 1, true>;
  using Source = typename Lines::Source;
  static int shared_bytes(int stages, int per_token, int warps) {
    return kBlockWarps * stages * Lines::kStage + per_token * (warps + 1) * kTileRows * 4;
  }

  const ExpertProductParams& p;
  const CombineParams& c;
  char* shared;
  int begin, end, first_row, token;

  __device__ __forceinline__ DownAndCombine(const ExpertProductParams& params,
                                            const CombineParams& combining, char* shared_memory)
      : p(params), c(combining), shared(shared_memory) {
    const int warp = threadIdx.x / 32, mine = warp % p.warps;
    begin = mine * p.lines / p.warps;
    end = (mine + 1) * p.lines / p.warps;
    first_row = static_cast<int>(blockIdx.x) * kTileRows;
    token = static_cast<int>(blockIdx.y);
  }

  __device__ __forceinline__ float* partials() const {
    return reinterpret_cast<float*>(shared + kBlockWarps * p.stages * Lines::kStage);
  }
  __device__ __forceinline__ float* results() const {
    return partials() + c.per_token * p.warps * kTileRows;
  }
  __device__ __forceinline__ int expert_of(int j) const {
    return __ldcg(c.ids + token * c.per_token + j);
  }
  __device__ __forceinline__ int next_expert(int j) const {
    while (j < c.per_token && expert_of(j) < 0) j += kBlockWarps / p.warps;
    return j;
  }

  __device__ __forceinline__ Source source_of(int j) const {
    const int lane = threadIdx.x % 32, last = p.rows - 1;
    const int64_t expert = expert_of(j), pair = int64_t{token} * c.per_token + j;
    const int64_t row_bytes = int64_t{p.in} * sizeof(W);
    const char* const weight = p.weight + expert * p.rows * row_bytes;
    Source from;
    from.weight[0][0] = weight + min(first_row + lane / 4, last) * row_bytes;
    from.weight[0][1] = weight + min(first_row + lane / 4 + 8, last) * row_bytes;
    from.x[0] = lane < 4 ? p.x + pair * p.x_stride_bytes : nullptr;
    if constexpr (Lines::kScaled) {
      const int64_t block = expert * ((p.rows + 127) / 128) + first_row / 128;
      from.w_scale = lane == 0 ? p.w_scale + block * p.lines : nullptr;
      from.x_scale = lane == 0 ? p.x_scale + pair * p.lines : nullptr;
    }
    return from;
  }

  struct Cursor {
    int j, line;
    Source from;
  };
  __device__ __forceinline__ Cursor start(int first) const {
    Cursor cursor{.j = first, .line = begin, .from = {}};
    if (first < c.per_token) cursor.from = source_of(first);
    return cursor;
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    if (++cursor.line < end) return;
    cursor.line = begin;
    cursor.j = next_expert(cursor.j + kBlockWarps / p.warps);
    if (cursor.j < c.per_token) cursor.from = source_of(cursor.j);
  }

  __device__ __forceinline__ void stream() {
    const int row_bytes = p.in * static_cast<int>(sizeof(W));
    const int x_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = next_expert(warp / p.warps);
    char* const ring = shared + warp * p.stages * Lines::kStage;
    Cursor load = start(first);
    {
      Cursor early = load;
      for (int stage = 0; stage < p.stages; ++stage) {
        if (early.j < c.per_token) {
          Lines::load_weights(ring + stage * Lines::kStage, early.from, early.line, row_bytes);
          advance(early);
        }
        commit_copies();
      }
    }
    wait_for_previous();
    for (int stage = 0; stage < p.stages; ++stage) {
      if (load.j < c.per_token) {
        Lines::load_activations(ring + stage * Lines::kStage, load.from, load.line, x_bytes);
        advance(load);
      }
      commit_copies();
    }
    char* stage = ring;
    for (int j = first; j < c.per_token; j = next_expert(j + kBlockWarps / p.warps)) {
      float sum[1][1][4] = {};
      for (int line = begin; line < end; ++line) {
        Lines::wait(p.stages);
        Lines::multiply(stage, sum);
        if (load.j < c.per_token) {
          Lines::load_weights(stage, load.from, load.line, row_bytes);
          Lines::load_activations(stage, load.from, load.line, x_bytes);
          advance(load);
        }
        commit_copies();
        stage = stage == ring + (p.stages - 1) * Lines::kStage ? ring : stage + Lines::kStage;
      }
      if (lane % 4 == 0) {  // the token is the first column
        float* const mine = partials() + (j * p.warps + warp % p.warps) * kTileRows;
        mine[lane / 4] = sum[0][0][0];
        mine[lane / 4 + 8] = sum[0][0][2];
      }
    }
  }

  __device__ __forceinline__ void add_up() const {
    __syncthreads();
    for (int i = threadIdx.x; i < c.per_token * kTileRows; i += kProductThreads) {
      const float* const from = partials() + i / kTileRows * p.warps * kTileRows + i % kTileRows;
      float sum = from[0];
      for (int part = 1; part < p.warps; ++part) sum += from[part * kTileRows];
      results()[i] = sum;
    }
    __syncthreads();
    const int row = first_row + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= kTileRows || row >= c.hidden_size) return;
    float sum = 0;
    for (int j = 0; j < c.per_token; ++j) {
      if (expert_of(j) < 0) continue;
      sum = __fmaf_rn(__ldcg(c.weights + token * c.per_token + j),
                      results()[j * kTileRows + threadIdx.x], sum);
    }
    Bf16* const out = static_cast<Bf16*>(c.out) + token * c.out_stride + row;
    *out = cuda::from_float<Bf16>(c.accumulate ? cuda::to_float(*out) + sum : sum);
  }
};

template <class W>
__global__ void __launch_bounds__(kProductThreads, 4)
    down_and_combine_kernel(const __grid_constant__ ExpertProductParams p,
                            const __grid_constant__ CombineParams c) {
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  DownAndCombine<W> down(p, c, shared);
  down.stream();
  down.add_up();
}

template <class W>
void launch_down_and_combine(ExpertProductParams p, const CombineParams& c, ops::Stream& stream) {
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.warps = warps_for(p.lines);
  const int64_t per_warp =
      num_tiles(p.lines, p.warps) * num_tiles(c.per_token, kBlockWarps / p.warps);
  p.stages = stages_for(per_warp, 4);
  launch(down_and_combine_kernel<W>,
         {.grid = dim3(num_tiles(p.rows, kTileRows), static_cast<unsigned>(c.tokens)),
          .block = kProductThreads,
          .shared_bytes = DownAndCombine<W>::shared_bytes(p.stages, c.per_token, p.warps)},
         stream, p, c);
}

}  // namespace fathom::cuda
