#pragma once
// down of a few tokens with the weighted sum over their experts, and for f8 and i4 the quantisation of h: a block owns
// 16 or 32 rows of a token's output and streams the matching rows of all its experts, so no result waits in memory. The
// sums are those of ExpertProduct, to the bit. Bound by reading the weights.
//
// Grid: (MT tiles of 16 rows, tokens). Warp w has the part w % warps of the inner dimension, of the experts
// j = w / warps, + kWarps / warps, ... Shared memory: the warps' rings, partial sums [j, part, row], results [j, row],
// the token's experts and their weights.
//
// NOTE: the next kernel starts only after this one's wait: what it reads ahead would delay what gate and up still read.

#include "cuda/device/reduce.cuh"
#include "cuda/experts/expert_product.cuh"
#include "cuda/ptx/copy.cuh"

namespace fathom::cuda {

// kWarps: of a block. MT: tiles of rows for which it quantises h.
template <class W, int kWarps, int MT>
struct DownAndCombine {
  // Of bf16 rings with room for more tokens are faster in many blocks.
  static constexpr bool kOneToken = kQuantisedRows<W> || kWarps > kBlockWarps;
  using Lines = LineStream<W, MT, 1, true, kOneToken>;
  using Source = typename Lines::Source;
  static constexpr int kRows = kTileRows * MT;
  static constexpr int kMostStages = 4;
  static int shared_bytes(int stages, int per_token, int warps) {
    return kWarps * stages * Lines::kStage + per_token * ((warps + 1) * kRows + 2) * 4;
  }

  const ExpertProductParams& p;
  const CombineParams& c;
  char* shared;
  int begin, end, first_row, token, per_token;

  __device__ __forceinline__ DownAndCombine(const ExpertProductParams& params,
                                            const CombineParams& combining, char* shared_memory)
      : p(params), c(combining), shared(shared_memory) {
    const int warp = threadIdx.x / 32, mine = warp % p.warps;
    begin = mine * p.lines / p.warps;
    end = (mine + 1) * p.lines / p.warps;
    first_row = static_cast<int>(blockIdx.x) * kRows;
    token = static_cast<int>(blockIdx.y);
    per_token = c.of_pairs.routed + c.of_pairs.shared;
    // An earlier kernel than the one before wrote these, so this needs no wait.
    if (static_cast<int>(threadIdx.x) < per_token) {
      experts()[threadIdx.x] = cuda::expert_of(c.of_pairs, token * per_token + threadIdx.x);
      weights()[threadIdx.x] = weight_of(c, token, threadIdx.x);
    }
    __syncthreads();
  }

  __device__ __forceinline__ float* partials() const {
    return reinterpret_cast<float*>(shared + kWarps * p.stages * Lines::kStage);
  }
  __device__ __forceinline__ float* results() const {
    return partials() + per_token * p.warps * kRows;
  }
  __device__ __forceinline__ int* experts() const {
    return reinterpret_cast<int*>(results() + per_token * kRows);
  }
  __device__ __forceinline__ float* weights() const {
    return reinterpret_cast<float*>(experts() + per_token);
  }
  __device__ __forceinline__ int next_expert(int j) const {
    while (j < per_token && experts()[j] < 0) j += kWarps / p.warps;
    return j;
  }

  __device__ __forceinline__ Source source_of(int j) const {
    const int lane = threadIdx.x % 32, last = p.rows - 1;
    const int64_t pair = int64_t{token} * per_token + j;
    const ExpertMatrix matrix = matrix_of<W, false>(p, experts()[j], 0);
    Source from;
#pragma unroll
    for (int half = 0; half < 2 * MT; ++half)
      from.weight[half / 2][half % 2] =
          matrix.weight + min(first_row + half * 8 + lane / 4, last) * matrix.row_bytes;
    from.x[0] = Lines::kScaled || lane < 4 ? p.x + pair * p.x_stride_bytes : nullptr;
    from.x_scale = nullptr;
    if constexpr (Lines::kScaled) {
      const int index = scale_index<W>(min(first_row + lane * Lines::kRowsOfScale, last));
      from.w_scale = lane < Lines::kScaleLanes ? matrix.scale + index * matrix.scale_row : nullptr;
    }
    return from;
  }

  // This lane's four channels of each block of a line of h, f8 and i4 only: zeros behind the end of the row.
  struct Hidden {
    float4 blocks[Lines::kBlocks];
  };
  static __device__ __forceinline__ Hidden load_hidden(const Source& from, int line, int in) {
    Hidden h;
#pragma unroll
    for (int block = 0; block < Lines::kBlocks; ++block) {
      const int lane = threadIdx.x % 32;
      const int channel = line * kLineWidth<W> + block * kScaleBlock + lane * 4;
      const float* const at = reinterpret_cast<const float*>(from.x[0]) + channel;
      h.blocks[block] = channel < in ? __ldcg(reinterpret_cast<const float4*>(at)) : float4{};
    }
    return h;
  }
  // As quantize_rows would, to where load_activations would have put the first token and its scales.
  static __device__ __forceinline__ void quantize_hidden(char* stage, const Hidden& hidden) {
    const int lane = threadIdx.x % 32;
    // Four lanes hold a piece, and the pieces of one half or, of i4, one lane's follow each other.
    const int piece = lane / 4, half = kIsI4<W> ? piece % 2 : piece / 4;
    const int owner = kIsI4<W> ? piece / 2 : piece % 4;
#pragma unroll
    for (int block = 0; block < Lines::kBlocks; ++block) {
      const float4& h = hidden.blocks[block];
      const float most = fmaxf(fmaxf(fabsf(h.x), fabsf(h.y)), fmaxf(fabsf(h.z), fabsf(h.w)));
      const float scale = fp8_scale(warp_max(most));
      const uint32_t low = floats_to_e4m3x2(__fdiv_rn(h.x, scale), __fdiv_rn(h.y, scale));
      const uint32_t high = floats_to_e4m3x2(__fdiv_rn(h.z, scale), __fdiv_rn(h.w, scale));
      char* const to =
          stage + Lines::kWeights + (block * 2 + half) * Lines::kPieceBytes + owner * 16;
      *reinterpret_cast<uint32_t*>(to + lane % 4 * 4) = low | high << 16;
      char* const scales = stage + Lines::kWeights + Lines::kTokens + Lines::kWeightScaleBytes;
      if (lane == 0) *reinterpret_cast<float*>(scales + block * 4) = scale;
    }
  }
  __device__ __forceinline__ void load_activations(char* stage, const Source& from,
                                                   int line) const {
    if constexpr (Lines::kScaled) {
      quantize_hidden(stage, load_hidden(from, line, p.in));
    } else {
      const int x_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
      Lines::load_activations(stage, from, line, x_bytes, p.blocks);
    }
  }

  struct Cursor {
    int j, line;
    Source from;
  };
  __device__ __forceinline__ Cursor start(int first) const {
    Cursor cursor{.j = first, .line = begin, .from = {}};
    if (first < per_token) cursor.from = source_of(first);
    return cursor;
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    if (++cursor.line < end) return;
    cursor.line = begin;
    cursor.j = next_expert(cursor.j + kWarps / p.warps);
    if (cursor.j < per_token) cursor.from = source_of(cursor.j);
  }

  // What a stage of the ring begins with: where its line of activations comes from, null if it has none.
  struct First {
    const char* x = nullptr;
    int line = 0;
  };
  // Starts on the weights of all stages, and finds their activations: addresses take longer than their loads.
  __device__ __forceinline__ void load_first_weights(char* ring, Cursor& load,
                                                     First (&firsts)[kMostStages]) const {
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
#pragma unroll
    for (int stage = 0; stage < kMostStages; ++stage) {
      if (stage == p.stages) break;
      if (load.j < per_token) {
        firsts[stage] = {.x = load.from.x[0], .line = load.line};
        Lines::load_weights(ring + stage * Lines::kStage, load.from, load.line, row_bytes,
                            p.blocks);
        advance(load);
      }
      commit_copies();
    }
  }
  // Where h is quantised here, its loads do not wait for each other.
  __device__ __forceinline__ void load_first_activations(char* ring,
                                                         const First (&firsts)[kMostStages]) const {
    Hidden h[kMostStages] = {};
#pragma unroll
    for (int stage = 0; stage < kMostStages; ++stage) {
      if (stage == p.stages) break;
      Source from{};
      from.x[0] = firsts[stage].x;
      if (from.x[0] != nullptr) {
        if constexpr (Lines::kScaled) {
          h[stage] = load_hidden(from, firsts[stage].line, p.in);
        } else {
          load_activations(ring + stage * Lines::kStage, from, firsts[stage].line);
        }
      }
      commit_copies();
    }
    if constexpr (Lines::kScaled) {
#pragma unroll
      for (int stage = 0; stage < kMostStages; ++stage)
        if (stage < p.stages) quantize_hidden(ring + stage * Lines::kStage, h[stage]);
    }
  }

  __device__ __forceinline__ void stream() {
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = next_expert(warp / p.warps);
    char* const ring = shared + warp * p.stages * Lines::kStage;
    Cursor load = start(first);
    First firsts[kMostStages];
    load_first_weights(ring, load, firsts);
    wait_for_previous();
    let_next_start();
    load_first_activations(ring, firsts);
    char* stage = ring;
    for (int j = first; j < per_token; j = next_expert(j + kWarps / p.warps)) {
      float sum[MT][1][4] = {};
      for (int line = begin; line < end; ++line) {
        Lines::wait(p.stages);
        Lines::multiply(stage, sum);
        if (load.j < per_token) {
          Lines::load_weights(stage, load.from, load.line, row_bytes, p.blocks);
          load_activations(stage, load.from, load.line);
          advance(load);
        }
        commit_copies();
        stage = stage == ring + (p.stages - 1) * Lines::kStage ? ring : stage + Lines::kStage;
      }
      if (lane % 4 == 0) {  // the token is the first column
        float* const mine = partials() + (j * p.warps + warp % p.warps) * kRows + lane / 4;
#pragma unroll
        for (int half = 0; half < 2 * MT; ++half) mine[half * 8] = sum[half / 2][0][half % 2 * 2];
      }
    }
  }

  __device__ __forceinline__ void add_up() const {
    __syncthreads();
    for (int i = threadIdx.x; i < per_token * kRows; i += kWarps * 32) {
      const float* const from = partials() + i / kRows * p.warps * kRows + i % kRows;
      float sum = from[0];
      for (int part = 1; part < p.warps; ++part) sum += from[part * kRows];
      results()[i] = sum;
    }
    __syncthreads();
    const int row = first_row + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= kRows || row >= c.hidden_size) return;
    float sum = 0;
#pragma unroll 4
    for (int j = 0; j < per_token; ++j) {
      const float with = __fmaf_rn(weights()[j], results()[j * kRows + threadIdx.x], sum);
      sum = experts()[j] < 0 ? sum : with;
    }
    Bf16* const out = static_cast<Bf16*>(c.out) + token * c.out_stride + row;
    *out = cuda::from_float<Bf16>(c.accumulate ? cuda::to_float(*out) + sum : sum);
  }
};

template <class W, int kWarps, int MT>
__global__ void __launch_bounds__(kWarps * 32, 4 * kBlockWarps / (kWarps * MT))
    down_and_combine_kernel(const __grid_constant__ ExpertProductParams p,
                            const __grid_constant__ CombineParams c) {
  extern __shared__ __align__(128) char shared[];
  DownAndCombine<W, kWarps, MT> down(p, c, shared);
  down.stream();
  down.add_up();
}

template <class W, int kWarps, int MT>
void launch_down_of(ExpertProductParams p, const CombineParams& c, ops::Stream& stream) {
  using Down = DownAndCombine<W, kWarps, MT>;
  const int per_token = c.of_pairs.per_token();
  const int64_t per_warp = num_tiles(p.lines, p.warps) * num_tiles(per_token, kWarps / p.warps);
  const dim3 grid(num_tiles(p.rows, Down::kRows), static_cast<unsigned>(c.tokens));
  const auto shared_bytes = [&] { return Down::shared_bytes(p.stages, per_token, p.warps); };
  // Deep rings, but not so deep that blocks must wait for others to end.
  const bool is_chosen = p.chosen_stages > 0;
  p.stages = stages_for(per_warp, is_chosen ? p.chosen_stages : Down::kMostStages);
  while (!is_chosen && p.stages > 2 &&
         (227 << 10) / (shared_bytes() + 1024) * num_multiprocessors() < int64_t{grid.x} * grid.y)
    --p.stages;
  launch(down_and_combine_kernel<W, kWarps, MT>,
         {.grid = grid, .block = kWarps * 32, .shared_bytes = shared_bytes()}, stream, p, c);
}

template <class W>
void launch_down_and_combine(ExpertProductParams p, const CombineParams& c, ops::Stream& stream) {
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.blocks = static_cast<int>(num_tiles(p.in, kScaleBlock));
  p.warps = warps_for(p.lines);
  // Where there is no second block for a multiprocessor, a block has twice the warps.
  if (int64_t{num_tiles(p.rows, kTileRows)} * c.tokens <= num_multiprocessors())
    return launch_down_of<W, 2 * kBlockWarps, 1>(p, c, stream);
  constexpr int kTiles = kQuantisedRows<W> ? 2 : 1;
  launch_down_of<W, kBlockWarps, kTiles>(p, c, stream);
}

}  // namespace fathom::cuda
