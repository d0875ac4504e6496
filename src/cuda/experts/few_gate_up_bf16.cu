#include "cuda/experts/expert_product.cuh"
#include "cuda/experts/few_tokens_bf16.cuh"
#include "cuda/experts/few_tokens_bf16.h"
#include "cuda/gemm/tensor_map.h"
#include "cuda/runtime/launch.cuh"

// gate and up with SiLU of a few tokens of bf16. Bound by reading the weights. A tile is eight columns of h: eight rows
// of gate, then the same of up.
//
// Grid: all multiprocessors, which take the tiles of all experts with tokens in turn. Shared memory: the warps' rings,
// 8 KB a stage: a warp's four lines of a tile.
//
// NOTE: tiles of shared experts come first, and are under way before the wait.

namespace fathom::cuda {
namespace {

constexpr int kLines = 4, kStages = 3;  // of a warp
constexpr int kColumns = kTileRows / 2;
constexpr int kStageBytes = kLines * kLineTile, kRingBytes = kStages * kStageBytes;

struct GateUpParams {
  CUtensorMap gate_up, shared_gate_up;
  const Bf16* x;
  int64_t x_stride;
  Bf16* h;
  PairExperts of_pairs;
  int tokens, inter, tiles;  // tiles: of an expert
};

struct GateUp {
  const GateUpParams& p;
  uint8_t* const rings;
  StreamShared& shared;

  __device__ __forceinline__ GateUp(const GateUpParams& params, uint8_t* shared_memory)
      : p(params),
        rings(shared_memory),
        shared(*reinterpret_cast<StreamShared*>(shared_memory + kStreamWarps * kRingBytes)) {}

  // Which tile of which group: blocks take them in turn.
  struct Place {
    int group, tile;
  };
  __device__ __forceinline__ void move(Place& at, int tiles) const {
    for (at.tile += tiles; at.tile >= p.tiles; at.tile -= p.tiles) ++at.group;
  }
  __device__ __forceinline__ Place first() const {
    Place at{.group = 0, .tile = 0};
    move(at, static_cast<int>(blockIdx.x));
    return at;
  }
  __device__ __forceinline__ void advance(Place& at) const {
    move(at, static_cast<int>(gridDim.x));
  }

  // The warp's lines of a tile; `next` becomes the tile after it.
  __device__ __forceinline__ void load_stage(const StreamRing& ring, Place& next) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const bool is_shared = next.group < p.of_pairs.shared;
    const int row = next.tile * kColumns + (is_shared ? next.group * p.inter : 0);
    const int matrix = is_shared ? 0 : 2 * shared.groups.expert[next.group];
    barrier_expect(ring.barrier(), kStageBytes);
    load_tile(is_shared ? &p.shared_gate_up : &p.gate_up, ring.stage(), ring.barrier(),
              {0, row, matrix, warp * kLines, 0});
    advance(next);
  }

  __device__ __forceinline__ void stream() const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    StreamRing ring{.full = shared.full[warp],
                    .stages_at = shared_address(rings + warp * kRingBytes),
                    .stage_bytes = kStageBytes,
                    .stages = kStages};
    StreamRing filling = ring;
    Place next = first();
    int loaded = 0;
    if (lane == 0) {
      for (; loaded < kStages && next.group < p.of_pairs.shared; ++loaded, filling.advance())
        load_stage(filling, next);
    }
    __syncwarp();
    wait_for_previous();
    let_next_start();
    const Bf16* const row = lane / 4 < p.tokens ? p.x + lane / 4 * p.x_stride : nullptr;
    LineOfToken x[kLines];
#pragma unroll
    for (int line = 0; line < kLines; ++line) x[line] = load_line(row, warp * kLines + line);
    wait_for_groups(shared);
    const int groups = shared.groups.count;
    if (lane == 0) {
      for (; loaded < kStages && next.group < groups; ++loaded, filling.advance())
        load_stage(filling, next);
    }
    __syncwarp();
    StreamParts parts{shared};
    for (Place at = first(); at.group < groups; advance(at), ring.advance()) {
      float sum[4] = {};
      barrier_wait(ring.barrier(), ring.parity);
#pragma unroll
      for (int line = 0; line < kLines; ++line)
        multiply_line(ring.stage() + line * kLineTile, x[line], sum);
      __syncwarp();
      if (lane == 0 && next.group < groups) load_stage(ring, next);
      __syncwarp();
      parts.put(sum);
    }
  }

  __device__ __forceinline__ void store(const Place& at, const float4& sum) const {
    const int token = static_cast<int>(threadIdx.x) % 4 * 2;
    const int column = at.tile * kColumns + stream_row();
    const float h[2] = {silu(sum.x) * sum.z, silu(sum.y) * sum.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pair = shared.groups.pair[at.group][token + i];
      if (pair >= 0) p.h[int64_t{pair} * p.inter + column] = cuda::from_float<Bf16>(h[i]);
    }
  }
  __device__ __forceinline__ void finish() const {
    wait_for_previous();
    let_next_start();
    find_stream_groups(p.of_pairs, p.tokens, shared);
    StreamParts parts{shared};
    for (Place at = first(); at.group < shared.groups.count; advance(at)) store(at, parts.take());
  }
};

__global__ void __launch_bounds__(kStreamThreads, 1)
    few_gate_up_bf16_kernel(const __grid_constant__ GateUpParams p) {
  extern __shared__ __align__(1024) uint8_t shared_memory[];
  const GateUp gate_up(p, shared_memory);
  if (threadIdx.x == 0) prefetch_map(&p.gate_up), prefetch_map(&p.shared_gate_up);
  init_stream(gate_up.shared);
  __syncthreads();
  if (threadIdx.x / 32 < kStreamWarps) {
    gate_up.stream();
  } else {
    gate_up.finish();
  }
}

// 128 bytes, rows, matrices, lines: gate and up of all experts in turn, or of the shared ones together.
CUtensorMap tile_map(const void* weights, int64_t rows, int64_t matrices, int64_t hidden_size) {
  const int64_t row_bytes = hidden_size * static_cast<int64_t>(sizeof(Bf16));
  return tensor_map({.data = weights,
                     .sizes = {kLineBytes, rows, matrices, row_bytes / kLineBytes, 1},
                     .strides = {row_bytes, rows * row_bytes, kLineBytes, kLineBytes},
                     .box = {kLineBytes, kColumns, 2, kLines, 1}});
}

}  // namespace

bool takes_few_tokens_bf16(const FewTokensSizes& s) {
  constexpr int64_t kLineChannels = kLineBytes / static_cast<int64_t>(sizeof(Bf16));
  constexpr int64_t kFewestTokens = 2;  // one takes as long as by pairs
  const int64_t lines = s.inter / kLineChannels;
  return s.weight == Stored::kBf16 && s.tokens >= kFewestTokens && s.tokens <= kStreamTokens &&
         s.hidden_size == kStreamWarps * kLines * kLineChannels && s.inter % kLineChannels == 0 &&
         lines >= kStreamWarps && lines <= kStreamWarps * kStreamDownLines &&
         s.experts <= kStreamExperts && s.routed <= kStreamRouted && s.shared <= kStreamShared;
}

void few_gate_up_bf16(const FewTokensBf16Args& args, Bf16* h, ops::Stream& stream) {
  if (args.tokens == 0) return;
  const PairExperts& of = args.of_pairs;
  GateUpParams p{
      .gate_up = tile_map(args.gate_up, args.inter, int64_t{2} * of.experts, args.hidden_size),
      .shared_gate_up = {},
      .x = args.x,
      .x_stride = args.x_stride,
      .h = h,
      .of_pairs = of,
      .tokens = args.tokens,
      .inter = args.inter,
      .tiles = args.inter / kColumns};
  p.shared_gate_up = of.shared == 0 ? p.gate_up
                                    : tile_map(args.shared_gate_up, int64_t{of.shared} * args.inter,
                                               2, args.hidden_size);
  launch(few_gate_up_bf16_kernel,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kStreamThreads,
          .shared_bytes = kStreamWarps * kRingBytes + static_cast<int>(sizeof(StreamShared))},
         stream, p);
}

}  // namespace fathom::cuda
