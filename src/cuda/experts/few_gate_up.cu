#include <algorithm>

#include "cuda/device/reduce.cuh"
#include "cuda/experts/few_tokens.cuh"
#include "cuda/experts/few_tokens.h"
#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/gate_up_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"
#include "tuned/few_experts.h"

// gate and up with SiLU of a few tokens: a cluster has 128 columns of h of an expert, its blocks divide the channels.
// Bound by reading the weights. The rows of all tokens lie in shared memory, and all are multiplied with each expert:
// what an instruction has room for.
//
// Grid: (expert with tokens, half of h, part of the channels), as many as there may be experts. Shared memory: stages
// of 16 KB, which one warp fills by TMA: 128 channels of 64 columns, gate and up; the rows; sums of the blocks.
//
// Order of sums: 128 channels are scaled and added in float32, channels rising, in eight parts of all channels; the
// parts as a tree. So the bits of a row are those of any number of tokens and blocks.

namespace fathom::cuda {
namespace {

// Two warpgroups multiply, a warp feeds them.
constexpr int kWarpgroups = 2, kMultiplying = kWarpgroups * 128, kThreads = kMultiplying + 32;
constexpr int kParts = 8, kHalf = kScaleBlock,
              kTile = 64;                // columns of h: of a cluster, of a warpgroup
constexpr int kStepBytes = kScaleBlock;  // of a row; 128 channels
constexpr int kSumRows = 2 * kHalf;      // gate, then up

struct GateUpParams {
  CUtensorMap x, gate_up, shared_gate_up;
  const float* x_scale;
  const float* gate_up_scale;
  const float* shared_gate_up_scale;
  PairExperts of_pairs;
  FewTokensHidden h;
  int tokens, steps, split, stages;  // steps: of 128 channels; split: blocks of a cluster
};

// A cluster's expert, -1 = none, and how many pairs have it.
struct GateUpFound {
  int expert, num_pairs;
};

// The first of a block's parts. Three blocks have three, three and two.
__host__ __device__ __forceinline__ int first_part(int split, int rank) {
  const int most = (kParts + split - 1) / split;
  return rank * most < kParts ? rank * most : kParts;
}
// Sums that a cluster's blocks send to the first. Three have pairs of parts and, of the second pair, one each.
__host__ __device__ __forceinline__ int num_sums(int split) { return split == 3 ? 5 : split; }

// Where things lie in shared memory, in bytes.
struct GateUpLayout {
  int x, sums, x_scales, scales, first, pairs, barriers, found, bytes;

  __host__ __device__ explicit GateUpLayout(const GateUpParams& p) {
    const int steps = first_part(p.split, 1) * ((p.steps + kParts - 1) / kParts);
    x = p.stages * kFewStageBytes;
    sums = x + steps * kFewColumns * kStepBytes;
    x_scales = sums + num_sums(p.split) * p.tokens * kSumRows * 4;
    scales = x_scales + steps * kFewColumns * 4;
    first = scales + 2 * steps * 4;
    pairs = first + p.of_pairs.experts * 4;
    const int most_pairs = p.tokens * (p.of_pairs.routed + p.of_pairs.shared);
    barriers = (pairs + most_pairs * 4 + 7) / 8 * 8;
    found = barriers + static_cast<int>(sizeof(FewBarriers));
    bytes = found + static_cast<int>(sizeof(GateUpFound));
  }
};

__device__ __forceinline__ int part_begin(const GateUpParams& p, int part) {
  return part * p.steps / kParts;
}

// kOneToken: its pairs are the clusters, so an expert is found with one look, and eight blocks divide the channels.
template <bool kOneToken>
struct GateUp {
  static constexpr int kSums = kFewColumns / 2;  // of a thread and 64 rows
  using Sums = float[2][kSums];

  const GateUpParams& p;
  const GateUpLayout at;
  uint8_t* const shared;
  FewBarriers& barriers;
  GateUpFound& found;
  int rank, group, half, begin, end;  // of steps

  __device__ __forceinline__ GateUp(const GateUpParams& params, uint8_t* shared_memory)
      : p(params),
        at(params),
        shared(shared_memory),
        barriers(*reinterpret_cast<FewBarriers*>(shared_memory + at.barriers)),
        found(*reinterpret_cast<GateUpFound*>(shared_memory + at.found)) {
    const int cluster = static_cast<int>(blockIdx.x) / split();
    rank = static_cast<int>(blockIdx.x) % split();
    group = cluster / 2;
    half = cluster % 2;
    begin = part_begin(p, first_part(split(), rank));
    end = part_begin(p, first_part(split(), rank + 1));
  }

  __device__ __forceinline__ int tokens() const { return kOneToken ? 1 : p.tokens; }
  __device__ __forceinline__ int split() const { return kOneToken ? kParts : p.split; }

  __device__ __forceinline__ float* floats(int offset) const {
    return reinterpret_cast<float*>(shared + offset);
  }
  __device__ __forceinline__ int* ints(int offset) const {
    return reinterpret_cast<int*>(shared + offset);
  }

  // One warp: this cluster's expert, -1 = none, and the pairs that it has.
  __device__ __forceinline__ int find_expert() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const PairExperts& of = p.of_pairs;
    int* const pairs = ints(at.pairs);
    if constexpr (kOneToken) {
      if (lane == 0) pairs[0] = group, found.num_pairs = 1;
      return group < of.shared ? of.experts + group : expert_of_routed(of, 0, group - of.shared);
    }
    if (group < of.shared) {
      if (lane < p.tokens) pairs[lane] = lane * pairs_per_token(of) + group;
      if (lane == 0) found.num_pairs = p.tokens;
      return of.experts + group;
    }
    const FewPairs mine(of, p.tokens * of.routed, ints(at.first));
    const int wanted = group - of.shared;
    int before = 0, expert = -1;
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const int e = mine.experts[i];
      const bool is_first = e >= 0 && ints(at.first)[e] == i * 32 + lane;
      const uint32_t firsts = __ballot_sync(0xffffffffu, is_first);
      if (is_first && before + __popc(firsts & ((1u << lane) - 1)) == wanted) expert = e;
      before += __popc(firsts);
    }
    expert = __reduce_max_sync(0xffffffffu, expert);
    if (expert < 0) return expert;
    int count = 0;
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const bool is_one = mine.experts[i] == expert;
      const uint32_t all = __ballot_sync(0xffffffffu, is_one);
      if (is_one)
        pairs[count + __popc(all & ((1u << lane) - 1))] = FewPairs::number(of, i * 32 + lane);
      count += __popc(all);
    }
    if (lane == 0) found.num_pairs = count;
    return expert;
  }

  // 128 channels of 64 columns, the block's n-th ones.
  __device__ __forceinline__ void load_stage(const FewRing& ring, int expert, int n) const {
    const bool is_routed = expert < p.of_pairs.experts;
    const int column = half * kHalf + n % 2 * kTile;
    ring.expect();
    load_tile_once(is_routed ? &p.gate_up : &p.shared_gate_up,
                   shared_address(shared + ring.slot * kFewStageBytes), ring.full(),
                   {(begin + n / 2) * kScaleBlock, 0, 0, column / kGateUpGroupRows,
                    is_routed ? expert : expert - p.of_pairs.experts});
  }
  __device__ __forceinline__ void load_rows() const {
    const int lane = static_cast<int>(threadIdx.x) % 32, steps = end - begin;
    const uint32_t rows = shared_address(&barriers.rows);
    if (lane == 0 && steps > 0) barrier_expect(rows, steps * kFewColumns * kStepBytes);
    __syncwarp();
    for (int k = lane; k < steps; k += 32)
      load_tile(&p.x, shared_address(shared + at.x + k * kFewColumns * kStepBytes), rows,
                {0, 0, begin + k, 0, 0});
  }
  // The scales of the rows, those of a step next to each other.
  __device__ __forceinline__ void load_row_scales() const {
    const int steps = end - begin;
    for (int i = static_cast<int>(threadIdx.x); i < tokens() * steps; i += kMultiplying) {
      const int token = kOneToken ? 0 : i / steps, k = kOneToken ? i : i % steps;
      floats(at.x_scales)[k * kFewColumns + token] =
          __ldcg(p.x_scale + token * p.steps + begin + k);
    }
  }
  // Of gate, then of up.
  __device__ __forceinline__ void load_scales() const {
    const int steps = end - begin, expert = found.expert, routed = p.of_pairs.experts;
    const float* const from = expert < routed
                                  ? p.gate_up_scale + int64_t{expert} * 4 * p.steps
                                  : p.shared_gate_up_scale + int64_t{expert - routed} * 4 * p.steps;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * steps; i += kMultiplying)
      floats(at.scales)[i] = __ldg(from + (i / steps * 2 + half) * p.steps + begin + i % steps);
  }

  // 128 channels: 64 columns of gate and up of all tokens to the part's sums.
  __device__ __forceinline__ void multiply_step(int step, FewRing& ring, Sums& part) const {
    const int k = step - begin;
    const int t = static_cast<int>(threadIdx.x) % 4;
    Sums sums;
    barrier_wait(ring.full(), ring.parity);
    const uint32_t a = descriptor_word(shared_address(shared + ring.slot * kFewStageBytes));
    const uint32_t b =
        descriptor_word(shared_address(shared + at.x + k * kFewColumns * kStepBytes));
    constexpr uint32_t kNext = 64 * kStepBytes / 16;
    mma_begin(sums[0]);
    mma_begin(sums[1]);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma(sums[m], descriptor(a + m * kNext + i * kStepOfK), descriptor(b + i * kStepOfK), i > 0,
            F8E4M3{});
    mma_commit();
    const float gate = floats(at.scales)[k], up = floats(at.scales)[end - begin + k];
    float x[kSums / 2];
#pragma unroll
    for (int i = 0; i < kSums / 2; ++i)
      x[i] = floats(at.x_scales)[k * kFewColumns + i / 2 * 8 + t * 2 + i % 2];
    mma_wait<0>(sums[0]);
    mma_wait<0>(sums[1]);
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty());
    ring.advance(kWarpgroups);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        part[m][i] += sums[m][i] * (x[i / 4 * 2 + i % 2] * (i % 4 < 2 ? gate : up));
  }

  static __device__ __forceinline__ void add(const Sums& before, Sums& to) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i) to[m][i] = before[m][i] + to[m][i];
  }
  static __device__ __forceinline__ void copy(const Sums& from, Sums& to) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i) to[m][i] = from[m][i];
  }

  // This block's parts as a tree, which goes to the first block; of three blocks in two pieces.
  __device__ __forceinline__ void multiply() const {
    FewRing ring{barriers, p.stages, static_cast<int>(threadIdx.x) / 128};
    Sums sums, one, two, four;
    const int first = first_part(split(), rank), last = first_part(split(), rank + 1) - 1;
    if (end > begin) barrier_wait(shared_address(&barriers.rows), 0);
    for (int i = 0; i <= last - first; ++i) {
      const int part = first + i;
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[m][j] = 0;
      for (int k = part_begin(p, part); k < part_begin(p, part + 1); ++k)
        multiply_step(k, ring, sums);
      if (split() == 3) {
        const bool is_second = part % 2 == 1 && part > first;
        if (is_second) add(one, sums);
        if (part % 2 == 0 && part < last) {
          copy(sums, one);
        } else {
          send(sums, part < 2 ? 0 : part < 4 ? part - 1 : part / 2 + 1);
        }
      } else if (i % 2 == 0) {
        copy(sums, one);
      } else {
        add(one, sums);
        if (i % 4 == 1) {
          copy(sums, two);
        } else {
          add(two, sums);
          if (i == 3) {
            copy(sums, four);
          } else {
            add(four, sums);
          }
        }
      }
    }
    if (split() != 3) send(sums, rank);
  }

  // To the first block of the cluster: [sum][token][row].
  __device__ __forceinline__ void send(const Sums& sums, int number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int column = static_cast<int>(threadIdx.x) / 128 * kTile + warp * 8 + lane / 4;
    const uint32_t to = shared_address(floats(at.sums) + number * tokens() * kSumRows + column);
    const uint32_t barrier = shared_address(&barriers.sums);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int row = i % 4 / 2 * kHalf + m * 32;  // behind the thread's column
        if (token >= tokens()) continue;
        const uint32_t place = to + (token * kSumRows + row) * 4;
        if (split() > 1) {
          send_word(place, barrier, 0, __float_as_uint(sums[m][i]));
        } else {
          floats(at.sums)[(number * tokens() + token) * kSumRows + row + column] = sums[m][i];
        }
      }
  }
  // Sums of all blocks are in the first one; the others need not wait for that. A block that is alone has stored them.
  __device__ __forceinline__ void wait_for_sums() const {
    if (split() == 1) {
      named_barrier_sync(1, kMultiplying);
    } else if (rank == 0) {
      barrier_wait(shared_address(&barriers.sums), 0);
    }
  }

  // Four rows of a token, from all blocks.
  __device__ __forceinline__ float4 total(int token, int row) const {
    const float* const from = floats(at.sums) + token * kSumRows + row;
    float4 all[kParts];
    const auto plus = [](float4 a, float4 b) {
      return float4{a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    };
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      all[i] = i < num_sums(split())
                   ? *reinterpret_cast<const float4*>(from + i * tokens() * kSumRows)
                   : float4{};
    if (split() == 3) return plus(plus(all[0], plus(all[1], all[2])), plus(all[3], all[4]));
    if (split() == 8)
      for (int i = 0; i < 4; ++i) all[i] = plus(all[2 * i], all[2 * i + 1]);
    if (split() >= 4)
      for (int i = 0; i < 2; ++i) all[i] = plus(all[2 * i], all[2 * i + 1]);
    return split() >= 2 ? plus(all[0], all[1]) : all[0];
  }

  // A warp for each pair.
  __device__ __forceinline__ void store() const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    for (int i = warp; i < found.num_pairs; i += kMultiplying / 32) {
      const int pair = ints(at.pairs)[i];
      const int token = kOneToken ? 0 : pair / pairs_per_token(p.of_pairs);
      const float4 gate = total(token, lane * 4), up = total(token, kHalf + lane * 4);
      const float h[4] = {silu_mul(gate.x, up.x), silu_mul(gate.y, up.y), silu_mul(gate.z, up.z),
                          silu_mul(gate.w, up.w)};
      const float most = fmaxf(fmaxf(fabsf(h[0]), fabsf(h[1])), fmaxf(fabsf(h[2]), fabsf(h[3])));
      const float scale = fp8_scale(warp_max(most));
      const uint32_t low = floats_to_e4m3x2(__fdiv_rn(h[0], scale), __fdiv_rn(h[1], scale));
      const uint32_t high = floats_to_e4m3x2(__fdiv_rn(h[2], scale), __fdiv_rn(h[3], scale));
      uint8_t* const to = p.h.values + int64_t{pair} * kFewInter + half * kHalf;
      reinterpret_cast<uint32_t*>(to)[lane] = low | high << 16;
      if (lane == 0) p.h.scales[pair * 2 + half] = scale;
    }
  }

  __device__ __forceinline__ void run() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (!kOneToken) {
      for (int i = static_cast<int>(threadIdx.x); i < p.of_pairs.experts; i += kThreads)
        ints(at.first)[i] = kFewMostPairs;
    }
    if (threadIdx.x == 0) {
      prefetch_map(&p.x), prefetch_map(&p.gate_up);
      init_few_barriers(barriers, p.stages);
      if (split() > 1 && rank == 0)
        barrier_expect(shared_address(&barriers.sums), num_sums(split()) * tokens() * kSumRows * 4);
    }
    __syncthreads();
    cluster_arrive_relaxed();
    cluster_wait();
    wait_for_previous();
    let_next_start();
    const bool is_feeding = warp == kMultiplying / 32;
    const int all = 2 * (end - begin);
    if (is_feeding) {
      const int expert = find_expert();
      if (expert >= 0 && lane < min(p.stages, all))
        load_stage({barriers, p.stages, lane}, expert, lane);
      if (lane == 0) found.expert = expert;
      __syncwarp();
      if (expert >= 0) load_rows();
    } else {
      load_row_scales();
      __syncwarp();
    }
    __syncthreads();
    if (found.expert < 0) return;
    if (is_feeding) {
      FewRing ring{barriers, p.stages, 0, 1};
      for (int n = p.stages; lane == 0 && n < all; ++n, ring.advance(1)) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        load_stage(ring, found.expert, n);
      }
      return;
    }
    load_scales();
    __syncwarp();
    named_barrier_sync(1, kMultiplying);
    multiply();
    wait_for_sums();
    if (rank == 0) store();
  }
};

template <bool kOneToken>
__global__ void __launch_bounds__(kThreads, 2)
    few_gate_up_kernel(const __grid_constant__ GateUpParams p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  GateUp<kOneToken>(p, shared).run();
}

void launch_gate_up(GateUpParams p, ops::Stream& stream) {
  // Of clusters of eight two blocks find room on a multiprocessor. More stages were no faster, and of one token slower.
  constexpr int kStagesAlone = 8, kStagesOfOneToken = 4;
  const bool is_one = p.tokens == 1;
  p.stages = few_stages(is_one         ? kStagesOfOneToken
                        : p.split == 1 ? kStagesAlone
                                       : kFewMostStages,
                        kWarpgroups, kFewMostShared, GateUpLayout(p).bytes);
  const PairExperts& of = p.of_pairs;
  const int groups = of.shared + std::min(p.tokens * of.routed, of.experts);
  launch(is_one ? few_gate_up_kernel<true> : few_gate_up_kernel<false>,
         {.grid = static_cast<unsigned>(groups * 2 * p.split),
          .block = kThreads,
          .shared_bytes = GateUpLayout(p).bytes,
          .cluster = p.split},
         stream, p);
}

}  // namespace

bool takes_few_tokens(const FewTokensSizes& s) {
  constexpr int64_t kMostHidden = 8192;
  const tuned::ExpertShape shape{dtype_of(s.weight), s.experts, s.inter};
  return tuned::has_few_expert_tokens(shape, s.tokens) && s.hidden_size % kScaleBlock == 0 &&
         s.hidden_size <= kMostHidden && s.shared <= 1 && s.experts <= kFewMostExperts &&
         s.routed + s.shared <= kFewMostPairs / kFewColumns;
}

void few_tokens_gate_up(const FewTokensArgs& args, const FewTokensHidden& h, ops::Stream& stream) {
  if (args.tokens == 0) return;
  const int tokens = static_cast<int>(args.tokens);
  const int64_t steps = args.hidden_size / kScaleBlock;
  // Few tokens have few experts, so more blocks divide the channels. Eight are two on a multiprocessor, as clusters of
  // eight find no room otherwise. Two tokens have up to 34 clusters: an H200 has room for 30 of four blocks, for 39 of
  // three.
  GateUpParams p{.x = tensor_map({.data = args.x,
                                  .sizes = {kScaleBlock, tokens, steps, 1, 1},
                                  .strides = {args.x_stride, kScaleBlock, kScaleBlock, kScaleBlock},
                                  .box = {kScaleBlock, kFewColumns, 1, 1, 1}}),
                 .gate_up = gate_up_map({.weights = args.weight,
                                         .experts = args.of_pairs.experts,
                                         .inter = kFewInter,
                                         .row_bytes = args.hidden_size},
                                        kTile),
                 .x_scale = args.x_scale,
                 .gate_up_scale = args.weight_scale,
                 .shared_gate_up_scale = args.shared_weight_scale,
                 .of_pairs = args.of_pairs,
                 .h = h,
                 .tokens = tokens,
                 .steps = static_cast<int>(steps),
                 .split = tokens == 1   ? kParts
                          : tokens == 2 ? 3
                          : tokens <= 4 ? 2
                                        : 1};
  p.shared_gate_up = p.gate_up;
  if (args.shared_weight != nullptr)
    p.shared_gate_up = gate_up_map({.weights = args.shared_weight,
                                    .experts = args.of_pairs.shared,
                                    .inter = kFewInter,
                                    .row_bytes = args.hidden_size},
                                   kTile);
  launch_gate_up(p, stream);
}

}  // namespace fathom::cuda
