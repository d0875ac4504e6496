// Lists of rows of four tokens as one. A byte of shared memory for each row of the sequence says who lists it: tokens
// mark their rows in turns. Then each warp counts the marked rows of its share, and writes them behind those of the
// warps before it.
//
// Bound by latency: some 3 us of a block, of which as many run at once as have room. Grid: fours of tokens. Shared
// memory: a byte for each row and 8 KB.

#include "cuda/attention/sparse/shared_lists.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kMergeThreads = 512, kMergeWarps = kMergeThreads / 32;
constexpr int kTokens = static_cast<int>(kSharingTokens);
constexpr int kStep = 256;  // rows that a warp looks at together, eight a lane
constexpr int kTileRows = 64;

struct MergeParams {
  const int32_t* rows;  // [tokens, topk]
  const int32_t* counts;
  int topk;
  int marks;  // rows of the sequence, up to a multiple of kMergeWarps * kStep
  SharedLists shared;
};

// Of the lane's eight rows, a byte each.
__device__ __forceinline__ int num_marked(const uint2& marks) {
  return __popc(__vcmpne4(marks.x, 0) & 0x01010101u) + __popc(__vcmpne4(marks.y, 0) & 0x01010101u);
}

// The warp's share of the marks. Its marked rows go behind `at`, and who lists them into `listed`.
__device__ __forceinline__ void write_share(const uint2* marks, int first_row, int num_rows, int at,
                                            int32_t* rows, uint8_t* listed) {
  const int lane = threadIdx.x % 32;
  for (int row = first_row; row < first_row + num_rows; row += kStep) {
    const uint2 mine = marks[row / 8 + lane];
    const int count = num_marked(mine);
    int behind = count;  // of the lane's and those before it
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, behind, lanes);
      if (lane >= lanes) behind += other;
    }
    int to = at + behind - count;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      for (uint32_t left = half == 0 ? mine.x : mine.y; left != 0; ++to) {
        const int bit = (__ffs(static_cast<int>(left)) - 1) & ~7;
        rows[to] = row + lane * 8 + half * 4 + bit / 8;
        listed[to] = static_cast<uint8_t>(left >> bit);
        left &= ~(0xffu << bit);
      }
    }
    at += __shfl_sync(0xffffffffu, behind, 31);
  }
}

// A warp writes who sees what of a tile: of 32 rows, lane l asks for row 8 i + 2 c + j of bit 8 c + 2 i + j = l.
__device__ __forceinline__ void write_seen(const uint8_t* listed, int count, int tile,
                                           SeenRows& seen) {
  const int lane = threadIdx.x % 32;
  const int row = tile * kTileRows + lane / 2 % 4 * 8 + lane / 8 * 2 + lane % 2;
  uint32_t marks[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    marks[half] = row + half * 32 < count ? listed[row + half * 32] : 0;
  uint32_t bits = 0;  // lane 4 token + c keeps its own
#pragma unroll
  for (int token = 0; token < kTokens; ++token) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t of_rows = __ballot_sync(0xffffffffu, (marks[half] >> token & 1) != 0);
      if (lane / 4 == token) bits |= (of_rows >> (lane % 4 * 8) & 0xff) << (half * 8);
    }
  }
  if (lane < 4 * kTokens) seen.bits[lane / 4][lane % 4] = static_cast<uint16_t>(bits);
}

__global__ void __launch_bounds__(kMergeThreads) merge_lists_kernel(const MergeParams p) {
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ int counts[kMergeWarps];
  uint8_t* const marks = memory;
  uint8_t* const listed = memory + p.marks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;
  let_next_start();
  for (int i = threadIdx.x; i < p.marks / 16; i += kMergeThreads)
    reinterpret_cast<uint4*>(marks)[i] = {};
  wait_for_previous();
  for (int token = 0; token < kTokens; ++token) {
    __syncthreads();
    const int64_t of = int64_t{blockIdx.x} * kTokens + token;
    const int count = p.counts[of];
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += kMergeThreads) {
      uint8_t& mark = marks[p.rows[of * p.topk + i]];
      mark = static_cast<uint8_t>(mark | 1 << token);
    }
  }
  __syncthreads();
  const auto* const eights = reinterpret_cast<const uint2*>(marks);
  const int share = p.marks / kMergeWarps;
  int mine = 0;
  for (int row = warp * share; row < (warp + 1) * share; row += kStep)
    mine += num_marked(eights[row / 8 + lane]);
  mine = __reduce_add_sync(0xffffffffu, mine);
  if (lane == 0) counts[warp] = mine;
  __syncthreads();
  int before = 0, count = 0;
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    before += w < warp ? counts[w] : 0;
    count += counts[w];
  }
  write_share(eights, warp * share, share, before, p.shared.rows + blockIdx.x * p.shared.width,
              listed);
  __syncthreads();
  SeenRows* const seen = p.shared.seen + blockIdx.x * (p.shared.width / kTileRows);
  for (int tile = warp; tile * kTileRows < count; tile += kMergeWarps)
    write_seen(listed, count, tile, seen[tile]);
  if (threadIdx.x == 0) p.shared.counts[blockIdx.x] = count;
}

int64_t num_marks(const ops::MlaSparseArgs& args) {
  constexpr int64_t kUnit = int64_t{kMergeWarps} * kStep;
  const int64_t rows = args.cache.rows.dim(0) * args.cache.block_tokens();
  return (rows + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

int64_t merge_bytes(const ops::MlaSparseArgs& args) {
  return num_marks(args) + kSharingTokens * args.rows.dim(1);
}

void merge_lists(const ops::MlaSparseArgs& args, const SharedLists& shared, ops::Stream& stream) {
  launch(merge_lists_kernel,
         {.grid = static_cast<unsigned>(args.counts.dim(0) / kSharingTokens),
          .block = kMergeThreads,
          .shared_bytes = static_cast<int>(merge_bytes(args))},
         stream,
         MergeParams{.rows = args.rows.as<int32_t>(),
                     .counts = args.counts.as<int32_t>(),
                     .topk = static_cast<int>(args.rows.dim(1)),
                     .marks = static_cast<int>(num_marks(args)),
                     .shared = shared});
}

}  // namespace fathom::cuda::absorbed
