#include "cuda/experts/few_tokens.cuh"
#include "cuda/experts/few_tokens.h"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

// down of a few tokens with the weighted sum over their experts. Bound by reading the weights.
//
// Grid: 64 columns of out a block, which goes over all experts that have tokens; stages are an expert's, by TMA.
// Shared memory: stages of 16 KB; the hidden vectors in pieces of 16 bytes, those of an expert next to each other, so
// that an instruction finds its rows wherever they begin (what else it takes is not stored); results of all pairs.
//
// NOTE: ids and weights are older than gate and up, so the first stages are under way before the wait.

namespace fathom::cuda {
namespace {

// Three warpgroups multiply, a warp feeds them.
constexpr int kWarpgroups = 3, kMultiplying = kWarpgroups * 128, kThreads = kMultiplying + 32;
constexpr int kRows = 64, kBlocks = kFewInter / kScaleBlock, kPieces = kFewInter / 16;

struct DownParams {
  CUtensorMap down, shared_down;
  const float* down_scale;
  const float* shared_down_scale;
  FewTokensHidden h;
  CombineParams combine;
  int pairs, stages, h_rows;  // h_rows: room in shared memory, odd
};

// The pairs of an expert with tokens have the ranks from `first` on.
struct RankedGroup {
  int first, count;
};

// Experts that have pairs, and these pairs.
struct DownFound {
  int groups, ranks;
};

// Where things lie in shared memory, in bytes.
struct DownLayout {
  int h, h_scales, results, scales, groups, rank_of_pair, pair_of_rank, weights, experts, first,
      rank_first, count, barriers, found, bytes;

  __host__ __device__ explicit DownLayout(const DownParams& p) {
    h = p.stages * kFewStageBytes;
    h_scales = h + p.h_rows * kFewInter;
    results = h_scales + p.pairs * kBlocks * 4;
    scales = results + p.pairs * kRows * 4;
    groups = scales + p.pairs * kBlocks * 4;
    rank_of_pair = groups + p.pairs * static_cast<int>(sizeof(RankedGroup));
    pair_of_rank = rank_of_pair + p.pairs * 4;
    weights = pair_of_rank + p.pairs * 4;
    experts = weights + p.pairs * 4;
    first = experts + p.pairs * 4;
    rank_first = first + p.combine.of_pairs.experts * 4;
    count = rank_first + p.combine.of_pairs.experts * 4;
    barriers = (count + p.pairs * 4 + 7) / 8 * 8;
    found = barriers + static_cast<int>(sizeof(FewBarriers));
    bytes = found + static_cast<int>(sizeof(DownFound));
  }
};

// kOneToken: its pairs are the groups, whatever their experts: one warp finds what others have to count and rank.
template <bool kOneToken>
struct Down {
  const DownParams& p;
  const DownLayout at;
  uint8_t* const shared;
  FewBarriers& barriers;
  DownFound& found;

  __device__ __forceinline__ Down(const DownParams& params, uint8_t* shared_memory)
      : p(params),
        at(params),
        shared(shared_memory),
        barriers(*reinterpret_cast<FewBarriers*>(shared_memory + at.barriers)),
        found(*reinterpret_cast<DownFound*>(shared_memory + at.found)) {}

  template <class T>
  __device__ __forceinline__ T* values(int offset) const {
    return reinterpret_cast<T*>(shared + offset);
  }
  __device__ __forceinline__ const PairExperts& of() const { return p.combine.of_pairs; }

  // One warp: the experts with tokens, whose first stages it puts under way at once.
  __device__ __forceinline__ void find_experts() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int* const first = values<int>(at.first);
    int* const experts = values<int>(at.experts);
    const auto put = [&](int group, int expert) {
      experts[group] = expert;
      if (group < p.stages) load_stage({barriers, p.stages, group}, expert);
    };
    if (lane < of().shared) put(lane, of().experts + lane);
    const FewPairs mine(of(), p.combine.tokens * of().routed, first);
    int groups = of().shared;
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const int e = mine.experts[i];
      const bool is_first = e >= 0 && first[e] == i * 32 + lane;
      const uint32_t firsts = __ballot_sync(0xffffffffu, is_first);
      if (is_first) put(groups + __popc(firsts & ((1u << lane) - 1)), e);
      groups += __popc(firsts);
    }
    if (lane == 0) found.groups = groups;
    __syncwarp();
  }

  // Another warp: ranks. Which of an expert's pairs comes first differs from run to run; no result depends on it.
  __device__ __forceinline__ void rank_pairs() const {
    const int lane = static_cast<int>(threadIdx.x) % 32, tokens = p.combine.tokens;
    int* const first = values<int>(at.rank_first);
    int* const count = values<int>(at.count);
    int* const rank_of = values<int>(at.rank_of_pair);
    int* const pair_of = values<int>(at.pair_of_rank);
    RankedGroup* const groups = values<RankedGroup>(at.groups);
    const FewPairs mine(of(), tokens * of().routed, first);
    int index[kFewPairsOfLane];
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i)
      index[i] = mine.experts[i] >= 0 ? atomicAdd(count + first[mine.experts[i]], 1) : 0;
    __syncwarp();
    int groups_before = of().shared, ranks_before = of().shared * tokens;
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const int pair = i * 32 + lane, e = mine.experts[i];
      const bool is_first = e >= 0 && first[e] == pair;
      const int pairs = is_first ? count[pair] : 0;
      const uint32_t firsts = __ballot_sync(0xffffffffu, is_first);
      int to = pairs;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int more = __shfl_up_sync(0xffffffffu, to, step);
        if (lane >= step) to += more;
      }
      if (is_first) {
        count[pair] = ranks_before + to - pairs;
        groups[groups_before + __popc(firsts & ((1u << lane) - 1))] = {
            .first = ranks_before + to - pairs, .count = pairs};
      }
      groups_before += __popc(firsts);
      ranks_before += __shfl_sync(0xffffffffu, to, 31);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const int pair = i * 32 + lane, e = mine.experts[i];
      if (pair >= tokens * of().routed) continue;
      const int number = FewPairs::number(of(), pair);
      const int rank = e >= 0 ? count[first[e]] + index[i] : -1;
      rank_of[number] = rank;
      if (rank >= 0) pair_of[rank] = number;
    }
    for (int i = lane; i < of().shared * tokens; i += 32) {
      const int number = i % tokens * pairs_per_token(of()) + i / tokens;
      rank_of[number] = i;
      pair_of[i] = number;
      if (i % tokens == 0) groups[i / tokens] = {.first = i, .count = tokens};
    }
    if (lane == 0) found.ranks = ranks_before;
    __syncwarp();
  }

  // One warp, of one token: all of the above.
  __device__ __forceinline__ void find_pairs() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int expert = -1;
    if (lane < of().shared) {
      expert = of().experts + lane;
    } else if (lane < p.pairs) {
      expert = expert_of_routed(of(), 0, lane - of().shared);
    }
    const uint32_t found_here = __ballot_sync(0xffffffffu, expert >= 0);
    const int rank = __popc(found_here & ((1u << lane) - 1));
    if (expert >= 0) {
      if (rank < p.stages) load_stage({barriers, p.stages, rank}, expert);
      values<int>(at.experts)[rank] = expert;
      values<int>(at.pair_of_rank)[rank] = lane;
      values<RankedGroup>(at.groups)[rank] = {.first = rank, .count = 1};
    }
    if (lane < p.pairs) values<int>(at.rank_of_pair)[lane] = expert >= 0 ? rank : -1;
    if (lane == 0) found.groups = found.ranks = __popc(found_here);
    __syncwarp();
  }

  __device__ __forceinline__ int first_column() const {
    return static_cast<int>(blockIdx.x) * kRows;
  }

  __device__ __forceinline__ void load_stage(const FewRing& ring, int expert) const {
    const bool is_routed = expert < of().experts;
    ring.expect();
    load_tile_once(is_routed ? &p.down : &p.shared_down,
                   shared_address(shared + ring.slot * kFewStageBytes), ring.full(),
                   {0, (is_routed ? expert : 0) * p.combine.hidden_size + first_column(), 0, 0, 0});
  }

  // A group's scale of this block's columns and 128 channels of h.
  __device__ __forceinline__ float scale_of(int group, int block) const {
    const int expert = values<int>(at.experts)[group];
    const int blocks = (p.combine.hidden_size + kScaleBlock - 1) / kScaleBlock;
    const float* const from = expert < of().experts
                                  ? p.down_scale + int64_t{expert} * blocks * kBlocks
                                  : p.shared_down_scale;
    return __ldg(from + first_column() / kScaleBlock * kBlocks + block);
  }

  // What all need, in part behind the wait: the loads of a thread do not wait for each other.
  __device__ __forceinline__ void load_rest() const {
    constexpr int kMostPairs = kOneToken ? kFewMostPairs / kFewColumns : kFewMostPairs;
    constexpr int kMine = (kMostPairs * kPieces + kMultiplying - 1) / kMultiplying;
    static_assert(kFewMostPairs * kBlocks <= kMultiplying);
    const int i = static_cast<int>(threadIdx.x), per_token = pairs_per_token(of());
    const int* const pair_of = values<int>(at.pair_of_rank);
    float scale = 0, weight = 0, h_scale = 0;
    uint4 pieces[kMine];
    if (i < found.groups * kBlocks) scale = scale_of(i / kBlocks, i % kBlocks);
    if (i < p.pairs)
      weight = kOneToken ? weight_of(p.combine, 0, i)
                         : weight_of(p.combine, i / per_token, i % per_token);
    wait_for_previous();
    let_next_start();
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int rank = (k * kMultiplying + i) / kPieces, piece = i % kPieces;
      if (rank < found.ranks)
        pieces[k] = __ldcg(reinterpret_cast<const uint4*>(
            p.h.values + int64_t{pair_of[rank]} * kFewInter + piece * 16));
    }
    if (i < found.ranks * kBlocks)
      h_scale = __ldcg(p.h.scales + pair_of[i / kBlocks] * kBlocks + i % kBlocks);
    if (i < found.groups * kBlocks) values<float>(at.scales)[i] = scale;
    if (i < p.pairs) values<float>(at.weights)[i] = weight;
    if (i < found.ranks * kBlocks) values<float>(at.h_scales)[i] = h_scale;
#pragma unroll
    for (int k = 0; k < kMine; ++k) {
      const int rank = (k * kMultiplying + i) / kPieces, piece = i % kPieces;
      if (rank < found.ranks) values<uint4>(at.h)[piece * p.h_rows + rank] = pieces[k];
    }
    show_to_engines();
    __syncwarp();
  }

  // Up to eight ranks of a group from `first` on; the stage is not read again where these are the `last`.
  __device__ __forceinline__ void multiply_ranks(int g, int first, int count, bool last,
                                                 const FewRing& ring) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const uint32_t piece_bytes = p.h_rows * 16;
    const uint32_t h = shared_address(shared + at.h) + first * 16;
    const uint32_t a = descriptor_word(shared_address(shared + ring.slot * kFewStageBytes));
    float sums[kBlocks][4];
    mma_begin(sums[0]);
    mma_begin(sums[1]);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma(sums[block], descriptor(a + block * (kRows * kScaleBlock / 16) + i * kStepOfK),
            pieces_descriptor(h + (block * 8 + i * 2) * piece_bytes, piece_bytes), i > 0, F8E4M3{});
    mma_commit();
    const float* const scales = values<float>(at.scales) + g * kBlocks;
    const float scale[kBlocks] = {scales[0], scales[1]};
    mma_wait<0>(sums[0]);
    mma_wait<0>(sums[1]);
    if (last && lane == 0) barrier_arrive(ring.empty());
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int mine = lane % 4 * 2 + i % 2;
      if (mine >= count) continue;
      const int rank = first + mine;
      const float* const h_scales = values<float>(at.h_scales) + rank * kBlocks;
      float total = 0;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        total += sums[block][i] * (h_scales[block] * scale[block]);
      values<float>(at.results)[rank * kRows + warp * 16 + i / 2 * 8 + lane / 4] = total;
    }
    __syncwarp();
  }

  // More than eight pairs have an expert only where tokens name it twice.
  __device__ __forceinline__ void multiply_group(int g, FewRing& ring) const {
    const RankedGroup group = values<RankedGroup>(at.groups)[g];
    barrier_wait(ring.full(), ring.parity);
    for (int done = 0; done < group.count; done += kFewColumns)
      multiply_ranks(g, group.first + done, group.count - done, done + kFewColumns >= group.count,
                     ring);
    ring.advance(kWarpgroups);
  }

  // In the order of a token's pairs.
  __device__ __forceinline__ void add_up() const {
    const CombineParams& c = p.combine;
    const int per_token = pairs_per_token(of());
    for (int i = static_cast<int>(threadIdx.x); i < c.tokens * kRows; i += kMultiplying) {
      const int token = i / kRows, column = i % kRows;
      float sum = 0;
#pragma unroll 4
      for (int j = 0; j < per_token; ++j) {
        const int rank = values<int>(at.rank_of_pair)[token * per_token + j];
        const float result = values<float>(at.results)[max(rank, 0) * kRows + column];
        const float with = __fmaf_rn(values<float>(at.weights)[token * per_token + j], result, sum);
        sum = rank < 0 ? sum : with;
      }
      Bf16* const out = static_cast<Bf16*>(c.out) + token * c.out_stride + first_column() + column;
      *out = cuda::from_float<Bf16>(c.accumulate ? cuda::to_float(*out) + sum : sum);
    }
  }

  __device__ __forceinline__ void clear_lists() const {
    for (int i = static_cast<int>(threadIdx.x); i < of().experts; i += kThreads)
      values<int>(at.first)[i] = values<int>(at.rank_first)[i] = kFewMostPairs;
    for (int i = static_cast<int>(threadIdx.x); i < p.pairs; i += kThreads)
      values<int>(at.count)[i] = 0;
  }

  __device__ __forceinline__ void run() const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const bool is_feeding = warp == kMultiplying / 32;
    if constexpr (kOneToken) {
      if (is_feeding) {
        if (lane == 0) init_few_barriers(barriers, p.stages);
        __syncwarp();
        find_pairs();
      }
    } else {
      clear_lists();
      if (threadIdx.x == 0) {
        prefetch_map(&p.down);
        init_few_barriers(barriers, p.stages);
      }
      __syncthreads();
      if (is_feeding) find_experts();
      if (warp == 0) rank_pairs();
    }
    __syncthreads();
    if (is_feeding) {
      wait_for_previous();
      let_next_start();
      FewRing ring{barriers, p.stages, 0, 1};
      for (int g = p.stages; lane == 0 && g < found.groups; ++g, ring.advance(1)) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        load_stage(ring, values<int>(at.experts)[g]);
      }
      return;
    }
    load_rest();
    named_barrier_sync(1, kMultiplying);
    FewRing ring{barriers, p.stages, warp / 4};
    for (int g = warp / 4; g < found.groups; g += kWarpgroups) multiply_group(g, ring);
    named_barrier_sync(1, kMultiplying);
    add_up();
  }
};

template <bool kOneToken>
__global__ void __launch_bounds__(kThreads, 1)
    few_down_kernel(const __grid_constant__ DownParams p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  Down<kOneToken>(p, shared).run();
}

void launch_down(DownParams p, ops::Stream& stream) {
  p.h_rows = (p.pairs + kFewColumns) | 1;
  p.stages =
      few_stages(p.pairs + kWarpgroups - 1, kWarpgroups, kFewMostShared, DownLayout(p).bytes);
  launch(p.combine.tokens == 1 ? few_down_kernel<true> : few_down_kernel<false>,
         {.grid = num_tiles(p.combine.hidden_size, kRows),
          .block = kThreads,
          .shared_bytes = DownLayout(p).bytes},
         stream, p);
}

// Boxes of 64 rows: the first 128 bytes of all, then the others.
CUtensorMap down_map(const void* weights, int64_t rows) {
  return tensor_map({.data = weights,
                     .sizes = {kScaleBlock, rows, kBlocks, 1, 1},
                     .strides = {kFewInter, kScaleBlock, kFewInter, kFewInter},
                     .box = {kScaleBlock, kRows, kBlocks, 1, 1}});
}

}  // namespace

void few_tokens_down(const FewTokensArgs& args, const FewTokensHidden& h,
                     const CombineParams& combining, ops::Stream& stream) {
  if (args.tokens == 0) return;
  const PairExperts& of = args.of_pairs;
  DownParams p{.down = down_map(args.weight, of.experts * args.hidden_size),
               .down_scale = args.weight_scale,
               .shared_down_scale = args.shared_weight_scale,
               .h = h,
               .combine = combining,
               .pairs = static_cast<int>(args.tokens) * of.per_token()};
  p.shared_down =
      args.shared_weight == nullptr ? p.down : down_map(args.shared_weight, args.hidden_size);
  launch_down(p, stream);
}

}  // namespace fathom::cuda
