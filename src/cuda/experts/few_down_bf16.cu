#include "cuda/experts/few_tokens_bf16.cuh"
#include "cuda/experts/few_tokens_bf16.h"
#include "cuda/gemm/tensor_map.h"
#include "cuda/runtime/launch.cuh"

// down of a few tokens of bf16 with the weighted sum over their experts. Bound by reading the weights.
//
// Grid: 16 columns of out a block, which goes over all experts that have tokens. Shared memory: the warps' rings, a
// stage for a warp's lines of an expert's 16 rows; results and weights of all pairs.
//
// NOTE: ids and weights are older than gate and up, so the first stages are under way before the wait, those of shared
// experts before the ids are known.

namespace fathom::cuda {
namespace {

constexpr int kStages = 4;

struct DownParams {
  CUtensorMap down[2], shared_down[2];  // boxes of a short part's lines, of one more
  const Bf16* h;
  CombineParams combine;
  int inter, lines, stage_bytes;
};

struct DownShared {
  StreamShared stream;
  float results[kStreamPairs][kTileRows];
  float weights[kStreamPairs];
};

struct Down {
  const DownParams& p;
  uint8_t* const rings;
  DownShared& own;
  StreamShared& shared;

  __device__ __forceinline__ Down(const DownParams& params, uint8_t* shared_memory)
      : p(params),
        rings(shared_memory),
        own(*reinterpret_cast<DownShared*>(shared_memory +
                                           kStreamWarps * kStages * params.stage_bytes)),
        shared(own.stream) {}

  __device__ __forceinline__ const PairExperts& of() const { return p.combine.of_pairs; }

  // A warp's lines.
  struct Part {
    int begin, lines;
  };
  __device__ __forceinline__ Part part() const {
    const int warp = static_cast<int>(threadIdx.x) / 32, begin = warp * p.lines / kStreamWarps;
    return {.begin = begin, .lines = (warp + 1) * p.lines / kStreamWarps - begin};
  }
  __device__ __forceinline__ void load_stage(const StreamRing& ring, const Part& part,
                                             int group) const {
    const bool is_shared = group < of().shared;
    const int longer = part.lines > p.lines / kStreamWarps ? 1 : 0;
    const int row = static_cast<int>(blockIdx.x) * kTileRows +
                    (is_shared ? 0 : shared.groups.expert[group] * p.combine.hidden_size);
    barrier_expect(ring.barrier(), part.lines * kLineTile);
    load_tile(is_shared ? &p.shared_down[longer] : &p.down[longer], ring.stage(), ring.barrier(),
              {0, row, part.begin + (is_shared ? group * p.lines : 0), 0, 0});
  }

  struct Hidden {
    LineOfToken lines[kStreamDownLines];
  };
  __device__ __forceinline__ Hidden load_hidden(const Part& part, int group) const {
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
    const int pair = group < shared.groups.count ? shared.groups.pair[group][token] : -1;
    const Bf16* const row = pair < 0 ? nullptr : p.h + int64_t{pair} * p.inter;
    Hidden h;
#pragma unroll
    for (int i = 0; i < kStreamDownLines; ++i)
      h.lines[i] = load_line(i < part.lines ? row : nullptr, part.begin + i);
    return h;
  }

  __device__ __forceinline__ void multiply_group(const StreamRing& ring, const Part& part,
                                                 int group, const Hidden& h,
                                                 StreamParts& parts) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sum[4] = {};
    barrier_wait(ring.barrier(), ring.parity);
#pragma unroll
    for (int i = 0; i < kStreamDownLines; ++i)
      if (i < part.lines) multiply_line(ring.stage() + i * kLineTile, h.lines[i], sum);
    __syncwarp();
    if (lane == 0 && group + kStages < shared.groups.count) load_stage(ring, part, group + kStages);
    __syncwarp();
    parts.put(sum);
  }

  // The hidden vectors are asked for as far ahead as the weights.
  __device__ __forceinline__ void stream() const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const Part mine = part();
    StreamRing ring{.full = shared.full[warp],
                    .stages_at = shared_address(rings + warp * kStages * p.stage_bytes),
                    .stage_bytes = p.stage_bytes,
                    .stages = kStages};
    StreamRing filling = ring;
    int loaded = 0;
    if (lane == 0) {
      for (; loaded < min(kStages, of().shared); ++loaded, filling.advance())
        load_stage(filling, mine, loaded);
    }
    __syncwarp();
    wait_for_groups(shared);
    const int groups = shared.groups.count;
    if (lane == 0) {
      for (; loaded < min(kStages, groups); ++loaded, filling.advance())
        load_stage(filling, mine, loaded);
    }
    __syncwarp();
    wait_for_previous();
    let_next_start();
    StreamParts parts{shared};
    Hidden h[kStages];
#pragma unroll
    for (int i = 0; i < kStages; ++i) h[i] = load_hidden(mine, i);
    for (int first = 0; first < groups; first += kStages) {
#pragma unroll
      for (int i = 0; i < kStages; ++i, ring.advance()) {
        if (first + i >= groups) break;
        multiply_group(ring, mine, first + i, h[i], parts);
        h[i] = load_hidden(mine, first + i + kStages);
      }
    }
  }

  __device__ __forceinline__ void load_weights() const {
    const int per_token = of().routed + of().shared;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < p.combine.tokens * per_token; i += 32)
      own.weights[i] = weight_of(p.combine, i / per_token, i % per_token);
  }
  __device__ __forceinline__ void keep(int group, const float4& sum) const {
    const int token = static_cast<int>(threadIdx.x) % 4 * 2, row = stream_row();
    const float top[2] = {sum.x, sum.y}, bottom[2] = {sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pair = shared.groups.pair[group][token + i];
      if (pair < 0) continue;
      own.results[pair][row] = top[i];
      own.results[pair][row + 8] = bottom[i];
    }
  }
  // In the order of a token's pairs.
  __device__ __forceinline__ void add_up() const {
    const CombineParams& c = p.combine;
    const int lane = static_cast<int>(threadIdx.x) % 32, column = lane % kTileRows;
    const int per_token = of().routed + of().shared;
    for (int token = lane / kTileRows; token < c.tokens; token += 32 / kTileRows) {
      float sum = 0;
#pragma unroll 4
      for (int j = 0; j < per_token; ++j) {
        const int group = shared.groups.group_of_pair[token * per_token + j];
        const int pair = group < 0 ? 0 : shared.groups.pair[group][token];
        const float with =
            __fmaf_rn(own.weights[token * per_token + j], own.results[pair][column], sum);
        sum = group < 0 ? sum : with;
      }
      Bf16* const out = static_cast<Bf16*>(c.out) + token * c.out_stride +
                        static_cast<int>(blockIdx.x) * kTileRows + column;
      *out = cuda::from_float<Bf16>(c.accumulate ? cuda::to_float(*out) + sum : sum);
    }
  }
  __device__ __forceinline__ void finish() const {
    find_stream_groups(of(), p.combine.tokens, shared);
    load_weights();
    wait_for_previous();
    let_next_start();
    StreamParts parts{shared};
    for (int group = 0; group < shared.groups.count; ++group) keep(group, parts.take());
    __syncwarp();
    add_up();
  }
};

__global__ void __launch_bounds__(kStreamThreads, 1)
    few_down_bf16_kernel(const __grid_constant__ DownParams p) {
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const Down down(p, shared_memory);
  if (threadIdx.x == 0) prefetch_map(&p.down[0]), prefetch_map(&p.down[1]);
  init_stream(down.shared);
  __syncthreads();
  if (threadIdx.x / 32 < kStreamWarps) {
    down.stream();
  } else {
    down.finish();
  }
}

// 16 rows, so many lines of each.
CUtensorMap lines_map(const void* weights, int64_t rows, int64_t row_values, int box_lines) {
  const int64_t row_bytes = row_values * static_cast<int64_t>(sizeof(Bf16));
  return tensor_map({.data = weights,
                     .sizes = {kLineBytes, rows, row_bytes / kLineBytes, 1, 1},
                     .strides = {row_bytes, kLineBytes, kLineBytes, kLineBytes},
                     .box = {kLineBytes, kTileRows, box_lines, 1, 1}});
}

}  // namespace

void few_down_bf16(const FewTokensBf16Args& args, const Bf16* h, const CombineParams& combining,
                   ops::Stream& stream) {
  if (args.tokens == 0) return;
  const PairExperts& of = args.of_pairs;
  const int lines = args.inter * static_cast<int>(sizeof(Bf16)) / kLineBytes;
  DownParams p{.down = {},
               .shared_down = {},
               .h = h,
               .combine = combining,
               .inter = args.inter,
               .lines = lines,
               .stage_bytes = static_cast<int>(num_tiles(lines, kStreamWarps)) * kLineTile};
  for (int longer = 0; longer < 2; ++longer) {
    const int64_t rows = args.hidden_size;
    const int box_lines = lines / kStreamWarps + longer;
    p.down[longer] = lines_map(args.down, of.experts * rows, args.inter, box_lines);
    p.shared_down[longer] = of.shared == 0 ? p.down[longer]
                                           : lines_map(args.shared_down, rows,
                                                       int64_t{of.shared} * args.inter, box_lines);
  }
  launch(few_down_bf16_kernel,
         {.grid = num_tiles(args.hidden_size, kTileRows),
          .block = kStreamThreads,
          .shared_bytes =
              kStreamWarps * kStages * p.stage_bytes + static_cast<int>(sizeof(DownShared))},
         stream, p);
}

}  // namespace fathom::cuda
