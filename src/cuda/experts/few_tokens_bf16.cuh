#pragma once
// What both kernels of few_tokens_bf16.h share: eight warps, each with a part of the inner dimension and a ring of its
// own that the copy engine fills, and a warp that finds the experts and adds the parts up.
//
// A tile is 16 rows of a weight. The parts, their lines, the instructions of a line and the order in which parts are
// added are those of linear/line.cuh and linear/plan.h: sums have the bits of ExpertProduct.
//
// Internal to experts/.

#include "cuda/device/convert.cuh"
#include "cuda/experts/pairs.cuh"
#include "cuda/linear/line.cuh"
#include "cuda/linear/plan.h"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

inline constexpr int kStreamWarps = kBlockWarps, kStreamThreads = (kStreamWarps + 1) * 32;
inline constexpr int kStreamTokens = kTileTokens;
inline constexpr int kStreamRouted = 8, kStreamShared = 4;  // of a token, at most
inline constexpr int kStreamExperts = 512;
inline constexpr int kStreamGroups = kStreamShared + kStreamTokens * kStreamRouted;
inline constexpr int kStreamPairs = kStreamTokens * (kStreamRouted + kStreamShared);
inline constexpr int kStreamStages = 4;                   // at most
inline constexpr int kStreamDownLines = 3;                // of a warp, of a row of down, at most
inline constexpr int kLineTile = kTileRows * kLineBytes;  // bytes
inline constexpr int kStreamBuffers = 2;

// The experts that have tokens, shared ones first, and which pair an expert has of a token, -1 = none.
struct StreamGroups {
  int count;
  int expert[kStreamGroups];
  int pair[kStreamGroups][kStreamTokens];
  int8_t group_of_pair[kStreamPairs];
  uint32_t present[kStreamExperts / 32];
};

// What lies in front of the rings.
struct StreamShared {
  float4 partials[kStreamBuffers][kStreamWarps][32];
  uint64_t full[kStreamWarps][kStreamStages], parts[kStreamBuffers], taken[kStreamBuffers], found;
  StreamGroups groups;
};

// All threads, before a barrier of the block.
__device__ __forceinline__ void init_stream(StreamShared& shared) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kStreamExperts / 32) shared.groups.present[i] = 0;
  if (i < kStreamWarps * kStreamStages)
    barrier_init(shared_address(&shared.full[i / kStreamStages][i % kStreamStages]), 1);
  if (i < kStreamBuffers) {
    barrier_init(shared_address(&shared.parts[i]), kStreamWarps);
    barrier_init(shared_address(&shared.taken[i]), 1);
  }
  if (i == 0) barrier_init(shared_address(&shared.found), 1);
  barriers_are_ready();
}

// One warp; the others wait_for_groups(). Of the pairs that a token has of one expert the last one counts: they are
// equal.
__device__ __forceinline__ void find_stream_groups(const PairExperts& of, int tokens,
                                                   StreamShared& shared) {
  StreamGroups& groups = shared.groups;
  constexpr int kMine = kStreamTokens * kStreamRouted / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, per_token = of.routed + of.shared;
  int experts[kMine];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int pair = i * 32 + lane;
    experts[i] = pair < tokens * of.routed ? expert_of_routed(of, 0, pair) : -1;
  }
  for (int i = lane; i < of.shared * kStreamTokens; i += 32) {
    const int group = i / kStreamTokens, token = i % kStreamTokens;
    const int pair = token * per_token + group;
    groups.pair[group][token] = token < tokens ? pair : -1;
    if (token < tokens) groups.group_of_pair[pair] = static_cast<int8_t>(group);
    if (token == 0) groups.expert[group] = of.experts + group;
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i)
    if (experts[i] >= 0) atomicOr(groups.present + experts[i] / 32, 1u << experts[i] % 32);
  __syncwarp();
  int before = lane < kStreamExperts / 32 ? __popc(groups.present[lane]) : 0;
  const int mine = before;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int more = __shfl_up_sync(0xffffffffu, before, step);
    if (lane >= step) before += more;
  }
  const int count = of.shared + __shfl_sync(0xffffffffu, before, 31);
  before += of.shared - mine;
  for (int i = of.shared * kStreamTokens + lane; i < count * kStreamTokens; i += 32)
    groups.pair[i / kStreamTokens][i % kStreamTokens] = -1;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int e = experts[i], routed = i * 32 + lane;
    const int word_before = __shfl_sync(0xffffffffu, before, max(e, 0) / 32);
    if (routed >= tokens * of.routed) continue;
    const int token = routed / of.routed, pair = routed + (token + 1) * of.shared;
    int group = -1;
    if (e >= 0) {
      group = word_before + __popc(groups.present[e / 32] & ((1u << e % 32) - 1));
      groups.expert[group] = e;
      atomicMax(&groups.pair[group][token], pair);
    }
    groups.group_of_pair[pair] = static_cast<int8_t>(group);
  }
  if (lane == 0) groups.count = count;
  __syncwarp();
  if (lane == 0) barrier_arrive(shared_address(&shared.found));
}
__device__ __forceinline__ void wait_for_groups(StreamShared& shared) {
  barrier_wait(shared_address(&shared.found), 0);
}

// Which row of eight a lane's fragments have. Lanes of one access have rows g and g + 4, whose pieces the swizzle puts
// into different banks.
__device__ __forceinline__ int stream_row() {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  return g / 2 + g % 2 * 4;
}

// A token's line: the pieces of 16 bytes that this lane multiplies.
struct LineOfToken {
  uint4 halves[2];
};
// This lane's token begins at `row`, null = none.
__device__ __forceinline__ LineOfToken load_line(const Bf16* row, int line) {
  LineOfToken x{};
  if (row == nullptr) return x;
  const char* const from = reinterpret_cast<const char*>(row) + line * kLineBytes +
                           static_cast<int>(threadIdx.x) % 4 * 16;
  x.halves[0] = __ldcg(reinterpret_cast<const uint4*>(from));
  x.halves[1] = __ldcg(reinterpret_cast<const uint4*>(from + 64));
  return x;
}

// A line of 16 rows, swizzled, by eight tokens: LineStream's instructions.
__device__ __forceinline__ void multiply_line(uint32_t tile, const LineOfToken& x,
                                              float (&sum)[4]) {
  const int row = stream_row(), t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t at = tile + row * kLineBytes + ((t + half * 4) ^ row) * 16;
    const uint4 top = load_shared_16(at), bottom = load_shared_16(at + 8 * kLineBytes);
    const uint4& b = x.halves[half];
    mma_bf16(sum, {top.x, bottom.x, top.y, bottom.y}, {b.x, b.y});
    mma_bf16(sum, {top.z, bottom.z, top.w, bottom.w}, {b.z, b.w});
  }
}

// A warp's ring, which it fills and reads itself.
struct StreamRing {
  uint64_t* full;
  uint32_t stages_at;
  int stage_bytes, stages, slot = 0;
  uint32_t parity = 0;

  __device__ uint32_t barrier() const { return shared_address(full + slot); }
  __device__ uint32_t stage() const { return stages_at + slot * stage_bytes; }
  __device__ void advance() {
    if (++slot < stages) return;
    slot = 0;
    parity ^= 1;
  }
};

// The warps' sums of a tile, from those that multiply to the one that adds up.
struct StreamParts {
  StreamShared& shared;
  int buffer = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++buffer < kStreamBuffers) return;
    buffer = 0;
    parity ^= 1;
  }
  __device__ __forceinline__ void put(const float (&sum)[4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    barrier_wait(shared_address(&shared.taken[buffer]), parity ^ 1);
    shared.partials[buffer][warp][lane] = {sum[0], sum[1], sum[2], sum[3]};
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.parts[buffer]));
    advance();
  }
  // In the order of the warps.
  __device__ __forceinline__ float4 take() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    barrier_wait(shared_address(&shared.parts[buffer]), parity);
    float4 each[kStreamWarps];
#pragma unroll
    for (int warp = 0; warp < kStreamWarps; ++warp)
      each[warp] = shared.partials[buffer][warp][lane];
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&shared.taken[buffer]));
    advance();
    float4 sum = each[0];
#pragma unroll
    for (int warp = 1; warp < kStreamWarps; ++warp) {
      sum.x += each[warp].x, sum.y += each[warp].y;
      sum.z += each[warp].z, sum.w += each[warp].w;
    }
    return sum;
  }
};

}  // namespace fathom::cuda
