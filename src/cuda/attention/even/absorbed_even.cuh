#pragma once
// How the blocks of mla_absorbed_even.cu share tokens: 1, 2, 4 or 8 blocks have one, and each has a run of splits of
// every chunk.
//
//   const EvenShare share = EvenShare::of(rows, shift, rank);
//   for (int tile = 0; tile < share.tiles; ++tile) use(share.row(tile));
//
// A run is a node of the tree in which splits of a chunk are added up, so a block leaves one sum of a chunk, and which
// rows it has follows from the item's own length. Internal to cuda/attention/even/.

#include "cuda/attention/absorbed_node.cuh"
#include "cuda/attention/absorbed_shares.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kChunkTileShift = 5;  // of 32 rows

// What one block has of an item of `rows` rows that 1 << shift blocks share.
struct EvenShare {
  int shift, rank;
  int rows;
  int last_chunk;  // which begins before the last row
  int last_shift;  // splits that a block has of it: 1 << last_shift
  int tiles;

  __device__ __forceinline__ static EvenShare of(int rows, int shift, int rank) {
    EvenShare s{shift, rank, rows, 0, 0, 0};
    if (rows <= 0) return s;
    s.last_chunk = (rows - 1) >> kChunkShift;
    const int last_rows = rows - (s.last_chunk << kChunkShift), blocks_rows = kSplitRows << shift;
    s.last_shift = (last_rows > blocks_rows ? 1 : 0) + (last_rows > 2 * blocks_rows ? 1 : 0) +
                   (last_rows > 4 * blocks_rows ? 1 : 0);
    const int begin = rank * kSplitRows << s.last_shift;
    const int mine = max(0, min(last_rows - begin, kSplitRows << s.last_shift));
    s.tiles = (s.last_chunk << (kChunkTileShift - shift)) + (mine + kTileRows - 1) / kTileRows;
    return s;
  }
  __device__ __forceinline__ int chunk(int tile) const { return tile >> (kChunkTileShift - shift); }
  // The first cache row of this block's tile.
  __device__ __forceinline__ int row(int tile) const {
    const int c = chunk(tile), in_chunk = tile & ((1 << (kChunkTileShift - shift)) - 1);
    const int first =
        c < last_chunk ? rank << (kChunkShift - shift) : rank * kSplitRows << last_shift;
    return (c << kChunkShift) + first + in_chunk * kTileRows;
  }
  // Blocks that have rows of a chunk; of the first one all that have any.
  __device__ __forceinline__ int sharers(int of_chunk) const {
    if (of_chunk < last_chunk) return 1 << shift;
    const int splits = (rows - (last_chunk << kChunkShift) + kSplitRows - 1) / kSplitRows;
    return (splits + (1 << last_shift) - 1) >> last_shift;
  }
};

// The sums of an item's runs, which its blocks leave in scratch, and how the block that comes last adds them up: by the
// warps that compute, each thread its own part of all. Code that runs once waits for its instructions: so it is a loop.
struct EvenNodes {
  // Places in shared memory: of nodes of a chunk that are under way together, of half a chunk or this block's own node,
  // and of the item so far.
  static constexpr int kAtOnce = 4, kHeld = kAtOnce, kItem = kHeld + 1;
  static constexpr int kNodeBytes = 8 * kThreads * 16, kStatsBytes = kStreamRows * 8;

  float4* const nodes;  // of kHeld + 1 places
  float4* const item;
  char* const stats;  // of all places, of each warp

  __device__ __forceinline__ static int unit(const AbsorbedParams& p, int item, int chunk,
                                             const EvenShare& share, int rank) {
    return ((item * p.max_chunks + chunk) << share.shift) + rank;
  }

  // The node becomes the item's sum. kept: the chunk whose node this block has as `node` instead of in scratch, or -1.
  // REQUIRES: kept only where fewer than eight blocks share the item.
  __device__ __forceinline__ void add_up(const AbsorbedParams& p, int number,
                                         const EvenShare& share, int kept, Node& node) const {
    if (kept >= 0) put(kHeld, node);
    node.clear();
    put(kItem, node);
#pragma unroll 1
    for (int chunk = 0; chunk <= share.last_chunk; ++chunk) {
      const int first = unit(p, number, chunk, share, 0), count = share.sharers(chunk);
      const int own = chunk == kept ? share.rank : -1;
      const auto place = [&](int i) { return i == own ? kHeld : i % kAtOnce; };
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        if (i % kAtOnce == 0) request(p, first + i, min(kAtOnce, count - i), own - i);
        get(place(i), node);
        // Splits as in SplitTree, each bit of i a level of the tree; the item so far is its last one.
        const bool ends = i + 1 == count;
#pragma unroll 1
        for (int level = 0; level < 4; ++level) {
          const int at = level == 0 ? place(i & ~1) : level == 1 ? 0 : level == 2 ? kHeld : kItem;
          if (level == 3 || (i >> level & 1) != 0) {
            add_before(at, node);
          } else if (!ends) {
            if (level > 0) put(at, node);
            break;
          }
        }
        if (ends && chunk < share.last_chunk) put(kItem, node);
      }
    }
  }

 private:
  __device__ __forceinline__ float4* values_of(int place) const {
    return place == kItem ? item : nodes + place * (kNodeBytes / 16);
  }
  __device__ __forceinline__ float2* stats_of(int place) const {
    return reinterpret_cast<float2*>(stats +
                                     (threadIdx.x / 32 * (kItem + 1) + place) * kStatsBytes);
  }
  __device__ __forceinline__ void put(int place, const Node& node) const {
    const int g = threadIdx.x % 32 / 4;
    put_values(node, values_of(place));
    float2* const to = stats_of(place);
    to[g] = {node.rows[0].max, node.rows[0].sum};
    to[g + 8] = {node.rows[1].max, node.rows[1].sum};
  }
  __device__ __forceinline__ void get(int place, Node& node) const {
    const int g = threadIdx.x % 32 / 4;
    const float4* const from = values_of(place) + threadIdx.x;
    const float2 low = stats_of(place)[g], high = stats_of(place)[g + 8];
    node.rows[0] = {low.x, low.y};
    node.rows[1] = {high.x, high.y};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 v = from[n * kThreads];
      node.values[0][n][0] = v.x;
      node.values[0][n][1] = v.y;
      node.values[0][n][2] = v.z;
      node.values[0][n][3] = v.w;
    }
  }
  __device__ __forceinline__ void add_before(int place, Node& node) const {
    const int g = threadIdx.x % 32 / 4;
    const float2 low = stats_of(place)[g], high = stats_of(place)[g + 8];
    add_to_values(node, {{low.x, low.y}, {high.x, high.y}}, values_of(place));
  }
  // Nodes of units from `first` on, but for number `own`, to the first places. A warp's lanes read what they copy.
  __device__ __forceinline__ void request(const AbsorbedParams& p, int first, int count,
                                          int own) const {
    const int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      if (i == own) continue;
      const float4* const from = SharedNodes::values(p, first + i) + threadIdx.x;
      const uint32_t to = shared_address(values_of(i) + threadIdx.x);
#pragma unroll
      for (int n = 0; n < 8; ++n) copy_async_16(to + n * kThreads * 16, from + n * kThreads, true);
      if (lane < kStreamRows / 2)
        copy_async_16(shared_address(stats_of(i)) + lane * 16,
                      p.stats + int64_t{first + i} * kStreamRows + lane * 2, true);
    }
    commit_copies();
    wait_copies<0>();
    __syncwarp();
  }
};

}  // namespace fathom::cuda::absorbed
