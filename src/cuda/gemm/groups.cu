#include "cuda/gemm/groups.cuh"

#include <algorithm>

#include "cuda/gemm/product.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

// A counting sort, bound by latency: count per chunk of pairs, place the experts' rows, give each pair its row. Three
// small kernels, or one for one chunk. Where in its expert's rows a pair lands may differ between runs; no result
// depends on it.

namespace fathom::cuda {
namespace {

// Up to kOneChunk pairs are one chunk.
constexpr int kChunk = 1024, kOneChunk = 4096, kThreads = 256;

int64_t num_chunks(const GroupSizes& sizes) {
  return sizes.pairs() <= kOneChunk ? 1 : num_tiles(sizes.pairs(), kChunk);
}

struct SortParams {
  const int32_t* ids;
  int pairs, per_token, first_expert, experts, shared;         // experts: all of them
  int chunks, chunk, gathered_columns, tile_rows, most_tiles;  // chunk: pairs
  Groups groups;
};

// Index among this rank's experts, behind which the shared ones lie; -1: none of them.
__device__ __forceinline__ int expert_of_pair(const SortParams& p, int pair) {
  const int routed = p.experts - p.shared;
  int place = pair;
  if (p.shared > 0) {
    const int token = pair / p.per_token, j = pair - token * p.per_token;
    if (j < p.shared) return routed + j;
    place = token * (p.per_token - p.shared) + j - p.shared;
  }
  const int id = p.ids[place], expert = id - p.first_expert;
  return id >= 0 && expert >= 0 && expert < routed ? expert : -1;
}

// The pairs of a chunk by expert, into shared memory. Waits for the kernel before.
__device__ __forceinline__ void count_chunk(const SortParams& p, int chunk, int* counts) {
  const int threads = static_cast<int>(blockDim.x);
  for (int e = threadIdx.x; e < p.experts; e += threads) counts[e] = 0;
  wait_for_previous();
  __syncthreads();
  const int begin = chunk * p.chunk, end = min(begin + p.chunk, p.pairs);
  for (int pair = begin + threadIdx.x; pair < end; pair += threads) {
    const int expert = expert_of_pair(p, pair);
    if (expert >= 0) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
}

// Grid: chunks of pairs. Shared memory: a counter per expert.
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ SortParams p) {
  extern __shared__ int counts[];
  let_next_start();
  count_chunk(p, static_cast<int>(blockIdx.x), counts);
  int* const out = p.groups.starts + static_cast<int64_t>(blockIdx.x) * p.experts;
  for (int e = threadIdx.x; e < p.experts; e += kThreads) out[e] = counts[e];
}

// The sum of `value` over the threads before this one. `warp_sums` is used once.
__device__ __forceinline__ int sum_before(int value, int (&warp_sums)[kMaxGroups / 32]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = value;
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, lanes);
    if (lane >= lanes) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sums[w];
  return sum - value;
}

// The tiles of an expert's rows; a thread per expert. Few of gathered rows take two tiles of columns at a time, and
// both blocks share the weights of a column that is left over.
template <int kTileRows>
__device__ __forceinline__ void list_tiles(const GroupTiles& list, int columns, int expert,
                                           int experts, int row, int num_rows) {
  __shared__ int warp_sums[kMaxGroups / 32];
  const auto columns_at_a_time = [](int rows) {
    return kTileRows == kGatheredTileRows && rows <= kGroupTileRows ? 2 : 1;
  };
  const int full = num_rows / kTileRows, rest = num_rows - full * kTileRows;
  const int step = columns_at_a_time(rest);
  const int tiles = full * columns + (rest > 0 ? (columns + step - 1) / step : 0);
  const int first = sum_before(tiles, warp_sums);
  GroupTile* next = list.tiles + first;
  for (int begin = 0; begin < num_rows; begin += kTileRows) {
    const int rows = min(kTileRows, num_rows - begin);
    for (int column = 0; column < columns; column += columns_at_a_time(rows)) {
      const bool is_left_over = column + columns_at_a_time(rows) > columns;
      *next++ = {.group = expert,
                 .row = row + begin,
                 .num_rows = rows,
                 .column = column + (is_left_over ? GroupTile::kSharesColumn : 0)};
    }
  }
  if (static_cast<int>(threadIdx.x) == experts - 1) *list.count = first + tiles, *list.taken = 0;
}

// The thread's expert. Of many rows the shared ones come first, whose tiles take longest.
__device__ __forceinline__ int expert_of_thread(const SortParams& p) {
  const int thread = static_cast<int>(threadIdx.x);
  if (p.shared == 0 || p.tile_rows == kFewTileRows || thread >= p.experts) return thread;
  return thread < p.shared ? p.experts - p.shared + thread : thread - p.shared;
}

// Lists the tiles of an expert with so many pairs and returns its first row; a thread per expert, and any more.
__device__ __forceinline__ int plan_expert(const SortParams& p, int e, int total) {
  __shared__ int warp_sums[kMaxGroups / 32];
  const int units = (total + kGroupAlignment - 1) / kGroupAlignment;
  const int row = sum_before(units, warp_sums) * kGroupAlignment;
  if (p.tile_rows == kFewTileRows) {
    list_tiles<kFewTileRows>(p.groups.tiles, 1, e, p.experts, row, total);
    for (int i = static_cast<int>(threadIdx.x); i <= p.most_tiles;
         i += static_cast<int>(blockDim.x))
      p.groups.counters[i] = 0;
  } else {
    list_tiles<kGroupTileRows>(p.groups.tiles, 1, e, p.experts, row, total);
    list_tiles<kGatheredTileRows>(p.groups.gathered_tiles, p.gathered_columns, e, p.experts, row,
                                  total);
  }
  return row;
}

// One block, a thread per expert: counts become the rows where the pairs of a chunk begin.
__global__ void __launch_bounds__(kMaxGroups) plan_kernel(const __grid_constant__ SortParams p) {
  let_next_start();
  wait_for_previous();
  const int e = expert_of_thread(p);
  const bool is_expert = e < p.experts;
  int* const counts = p.groups.starts + e;
  int total = 0;
  if (is_expert) {
#pragma unroll 8
    for (int chunk = 0; chunk < p.chunks; ++chunk)
      total += counts[static_cast<int64_t>(chunk) * p.experts];
  }
  int row = plan_expert(p, e, total);
  if (!is_expert) return;
  for (int begin = 0; begin < p.chunks; begin += 8) {
    int count[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      count[i] = begin + i < p.chunks ? counts[static_cast<int64_t>(begin + i) * p.experts] : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (begin + i < p.chunks) counts[static_cast<int64_t>(begin + i) * p.experts] = row;
      row += count[i];
    }
  }
}

// Gives each pair of a chunk its row; `rows`, in shared memory, has the next one of each expert.
__device__ __forceinline__ void place_chunk(const SortParams& p, int chunk, int* rows) {
  const int begin = chunk * p.chunk, end = min(begin + p.chunk, p.pairs);
  for (int pair = begin + threadIdx.x; pair < end; pair += static_cast<int>(blockDim.x)) {
    const int expert = expert_of_pair(p, pair);
    int row = -1;
    if (expert >= 0) {
      row = atomicAdd(&rows[expert], 1);
      p.groups.token_of_row[row] = pair / p.per_token;
    }
    p.groups.row_of_pair[pair] = row;
  }
}

// Grid: chunks of pairs. Shared memory: the next row per expert.
__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ SortParams p) {
  extern __shared__ int rows[];
  let_next_start();
  wait_for_previous();
  const int* const starts = p.groups.starts + static_cast<int64_t>(blockIdx.x) * p.experts;
  for (int e = threadIdx.x; e < p.experts; e += kThreads) rows[e] = starts[e];
  __syncthreads();
  place_chunk(p, static_cast<int>(blockIdx.x), rows);
}

// One chunk, by one block of a thread per expert or more. Shared memory: a counter per expert, then its next row.
__global__ void __launch_bounds__(kMaxGroups)
    sort_chunk_kernel(const __grid_constant__ SortParams p) {
  extern __shared__ int rows[];
  let_next_start();
  count_chunk(p, 0, rows);
  const int e = expert_of_thread(p);
  const int first = plan_expert(p, e, e < p.experts ? rows[e] : 0);
  if (e < p.experts) rows[e] = first;
  __syncthreads();
  place_chunk(p, 0, rows);
}

}  // namespace

static GroupTiles carve_tiles(int64_t most, DeviceArena& arena) {
  return {.tiles = arena.take<GroupTile>(most),
          .count = arena.take<int>(1),
          .taken = arena.take<int>(1)};
}

Groups carve_groups(const GroupSizes& sizes, DeviceArena& arena) {
  return {.starts = arena.take<int>(num_chunks(sizes) * sizes.all_experts()),
          .tiles = carve_tiles(sizes.max_tiles(), arena),
          .gathered_tiles = carve_tiles(sizes.max_gathered_tiles(), arena),
          .counters = arena.take<int>(sizes.max_tiles() + 1),
          .row_of_pair = arena.take<int>(sizes.pairs()),
          .token_of_row = arena.take<int>(sizes.max_rows())};
}

void sort_pairs(const GroupSizes& sizes, const int32_t* ids, const Groups& groups,
                ops::Stream& stream) {
  const SortParams params{.ids = ids,
                          .pairs = static_cast<int>(sizes.pairs()),
                          .per_token = static_cast<int>(sizes.per_token()),
                          .first_expert = static_cast<int>(sizes.first_expert),
                          .experts = static_cast<int>(sizes.all_experts()),
                          .shared = static_cast<int>(sizes.shared),
                          .chunks = static_cast<int>(num_chunks(sizes)),
                          .chunk = num_chunks(sizes) == 1 ? kOneChunk : kChunk,
                          .gathered_columns = static_cast<int>(sizes.gathered_columns),
                          .tile_rows = static_cast<int>(sizes.tile_rows),
                          .most_tiles = static_cast<int>(sizes.max_tiles()),
                          .groups = groups};
  const auto chunks = static_cast<unsigned>(num_chunks(sizes));
  const int shared_bytes = params.experts * 4;
  const auto plan_threads = num_tiles(sizes.all_experts(), 32) * 32;
  if (chunks == 1) {
    const unsigned threads = std::clamp(num_tiles(params.pairs, 32) * 32, unsigned{kThreads},
                                        static_cast<unsigned>(kMaxGroups));
    return launch(sort_chunk_kernel,
                  {.block = std::max(plan_threads, threads), .shared_bytes = shared_bytes}, stream,
                  params);
  }
  launch(count_kernel, {.grid = chunks, .block = kThreads, .shared_bytes = shared_bytes}, stream,
         params);
  launch(plan_kernel, {.grid = 1, .block = plan_threads}, stream, params);
  launch(place_kernel, {.grid = chunks, .block = kThreads, .shared_bytes = shared_bytes}, stream,
         params);
}

}  // namespace fathom::cuda
