#pragma once
// out[t, n] = sum over k of weight[n, k] * x[t, k], for few tokens. Bound by reading the weight once: its bytes go from
// memory to a ring in shared memory that each warp has for itself.
//
// Grid: x = groups of blocks (choose.h) that walk over the units, z = heads. A unit is kBlockWarps / warps * MT tiles
// of 16 rows and one tile of 8 * NT tokens; `warps` warps share a unit's rows and divide the inner dimension.
// Shared memory: the rings (warp, stage), then two buffers of partial sums [warp, token, row], then the sums that
// come from other blocks. A block starts to read weights before the kernel before has finished, and while it adds up a
// unit the next one's weights are under way.

#include <algorithm>

#include "cuda/linear/choose.h"
#include "cuda/linear/line.cuh"
#include "cuda/linear/product.h"
#include "cuda/linear/store.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {

inline constexpr int kProductThreads = kBlockWarps * 32;
inline constexpr int kWarpBits = 3;
static_assert(1 << kWarpBits == kBlockWarps);

// Floats of one warp's partial sums: [8 * NT, 16 * MT + 4]; the 4 keep the banks apart.
template <int MT, int NT>
inline constexpr int kPartialFloats = kTileTokens* NT*(kTileRows* MT + 4);

template <int MT, int NT, class Sum>
__device__ __forceinline__ void store_partial(Sum* partial, const Sum (&sum)[MT][NT][4]) {
  constexpr int kStride = kTileRows * MT + 4;
  const int lane = threadIdx.x % 32, row = lane / 4, token = lane % 4 * 2;
#pragma unroll
  for (int tile = 0; tile < MT; ++tile)
#pragma unroll
    for (int column = 0; column < NT; ++column)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[(column * kTileTokens + token + i % 2) * kStride + tile * kTileRows + row +
                i / 2 * 8] = sum[tile][column][i];
}

// In the order of the warps.
template <int MT, int NT, class Sum>
__device__ __forceinline__ Sum add_partials(const Sum* partials, int warps, int token, int row) {
  constexpr int kStride = kTileRows * MT + 4;
  const Sum* const from = partials + token * kStride + row;
  Sum each[kBlockWarps];  // loaded beside each other
#pragma unroll
  for (int warp = 0; warp < kBlockWarps; ++warp)
    each[warp] = warp < warps ? from[warp * kPartialFloats<MT, NT>] : 0;
  Sum sum = each[0];
#pragma unroll
  for (int warp = 1; warp < kBlockWarps; ++warp)
    if (warp < warps) sum += each[warp];
  return sum;
}

// To the same place of another block of the cluster.
template <class Sum>
__device__ __forceinline__ void store_remote_sum(const Sum* to, uint32_t rank, Sum sum) {
  float value;
  if constexpr (std::is_same_v<Sum, int>) value = __int_as_float(sum);
  if constexpr (std::is_same_v<Sum, float>) value = sum;
  store_remote(shared_address(to), rank, value);
}

// What another block of the cluster left there.
template <class Sum>
__device__ __forceinline__ Sum load_remote_sum(const Sum* sum, uint32_t rank) {
  const float value = load_remote(shared_address(sum), rank);
  if constexpr (std::is_same_v<Sum, int>) return __float_as_int(value);
  if constexpr (std::is_same_v<Sum, float>) return value;
}

// A finished sum as it is stored.
template <class W>
__device__ __forceinline__ float scaled(const ProductParams& p, const ProductPart& part, int token,
                                        int row, SumOf<W> sum) {
  if constexpr (!kIsI8Channels<W>) return sum;
  return __fmul_rn(static_cast<float>(sum), __fmul_rn(p.x_scale[token], part.w_scale[row]));
}

template <class W, int MT, int NT, bool kAligned>
struct Product {
  using Lines = LineStream<W, MT, NT, kAligned>;
  using Source = typename Lines::Source;
  using Sum = typename Lines::Sum;
  static constexpr int kRows = kTileRows * MT, kTokens = kTileTokens * NT;
  static constexpr int kPartials = kBlockWarps * kPartialFloats<MT, NT>;
  static constexpr int shared_bytes(int stages) {
    return kBlockWarps * stages * Lines::kStage + (2 * kPartials + kTokens * kRows) * 4;
  }

  const ProductParams& p;
  const ProductPart& part;
  char* ring;
  Sum* partials;
  int rank, first_unit, begin, end;
  int tile_bits;  // a block has 2^tile_bits tiles of rows; divisions behind the last line would take a while

  __device__ __forceinline__ Product(const ProductParams& params, char* shared)
      : p(params), part(static_cast<int>(blockIdx.x) < params.blocks_a ? params.a : params.b) {
    const int warp = threadIdx.x / 32;
    const int block = static_cast<int>(blockIdx.x) - (&part == &p.a ? 0 : p.blocks_a);
    ring = shared + warp * p.stages * Lines::kStage;
    partials = reinterpret_cast<Sum*>(shared + kBlockWarps * p.stages * Lines::kStage);
    tile_bits = kWarpBits + 1 - __ffs(part.warps);
    rank = block % part.group;
    first_unit = block / part.group;
    const int parts = part.group * part.warps, mine = rank * part.warps + warp % part.warps;
    begin = mine * p.lines / parts;
    end = (mine + 1) * p.lines / parts;
  }

  __device__ __forceinline__ int row_unit(int unit) const {
    return p.token_tiles == 1 ? unit : unit / p.token_tiles;
  }
  __device__ __forceinline__ int first_token_of(int unit) const {
    return p.token_tiles == 1 ? 0 : unit % p.token_tiles * kTokens;
  }

  __device__ __forceinline__ Source source_of(int unit) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_row =
        ((row_unit(unit) << tile_bits) + (warp >> (kWarpBits - tile_bits))) * kRows;
    const int first_token = first_token_of(unit);
    const int64_t row_bytes = weight_row_bytes<W>(p.in);
    const char* const weight = part.weight + blockIdx.z * part.weight_head_bytes;
    const char* const x = p.x + blockIdx.z * p.x_head_bytes;
    Source from;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile) {
      const int row = first_row + tile * kTileRows + lane / 4;
      from.weight[tile][0] = weight + min(row, part.rows - 1) * row_bytes;
      from.weight[tile][1] = weight + min(row + 8, part.rows - 1) * row_bytes;
    }
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      const int token = first_token + column * kTileTokens + lane / 4;
      from.x[column] = token < p.tokens ? x + token * p.x_stride_bytes : nullptr;
    }
    if constexpr (Lines::kScaled) {
      const int row = min(first_row + lane * Lines::kRowsOfScale, part.rows - 1);
      const int block = kRowScales<W> ? row : row / kScaleBlock;
      const int token = first_token + lane;
      const float* const w_scale = part.w_scale + blockIdx.z * part.w_scale_head;
      const float* const x_scale = p.x_scale + int64_t{blockIdx.z} * p.blocks;
      from.w_scale = lane < Lines::kScaleLanes ? w_scale + int64_t{block} * p.blocks : nullptr;
      from.x_scale = lane < kTokens && token < p.tokens
                         ? x_scale + int64_t{token} * p.heads * p.blocks
                         : nullptr;
    }
    return from;
  }

  // Walks over the lines of this warp, unit after unit.
  struct Cursor {
    int unit, line;
    Source from;
  };
  __device__ __forceinline__ Cursor start() const {
    return {.unit = first_unit, .line = begin, .from = source_of(first_unit)};
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    if (++cursor.line < end) [[likely]]
      return;
    cursor.line = begin;
    cursor.unit += part.stride;
    if (cursor.unit < part.units) cursor.from = source_of(cursor.unit);
  }

  __device__ __forceinline__ void store(int unit, int tile, int token, int row, Sum sum) const {
    const int out_row = ((row_unit(unit) << tile_bits) + tile) * kRows + row;
    const int out_token = first_token_of(unit) + token;
    if (out_row < part.rows && out_token < p.tokens)
      store_product(p, part, out_token, out_row, scaled<W>(p, part, out_token, out_row, sum));
  }

  // The blocks of a group share the sums: block r stores number i where i % group is r, and gets it from all others.
  __device__ __forceinline__ Sum* sums_from(int block) const {
    return partials + 2 * kPartials + block * (kTokens * kRows / part.group);
  }

  // All warps' sums of a unit; `buffer` alternates, so that a unit's readers meet no writer of the next.
  __device__ __forceinline__ void finish(int unit, const Sum (&sum)[MT][NT][4], int buffer) {
    Sum* const mine = partials + buffer * kPartials;
    store_partial<MT, NT>(mine + threadIdx.x / 32 * kPartialFloats<MT, NT>, sum);
    __syncthreads();
    if (p.cluster > 1) cluster_wait();  // all of its blocks have started
    const uint32_t first = cluster_rank() - static_cast<uint32_t>(rank);
    const int tiles = 1 << tile_bits;
    const int tokens = min(kTokens, p.tokens - first_token_of(unit));
    for (int i = threadIdx.x; i < tiles * tokens * kRows; i += kProductThreads) {
      const int row = i % kRows, tile = i / kRows & (tiles - 1), token = i / kRows >> tile_bits;
      const Sum value = add_partials<MT, NT>(mine + tile * part.warps * kPartialFloats<MT, NT>,
                                             part.warps, token, row);
      if (part.group == 1) {
        store(unit, tile, token, row, value);
      } else {
        store_remote_sum(sums_from(rank) + i / part.group,
                         first + static_cast<uint32_t>(i % part.group), value);
      }
    }
  }

  // Adds what the group's blocks sent, in order of rank. A group has all of a block's warps, and one unit.
  __device__ __forceinline__ void finish_group() {
    const int tokens = min(kTokens, p.tokens - first_token_of(first_unit));
    for (int i = threadIdx.x; i < tokens * kRows / part.group; i += kProductThreads) {
      Sum sum = sums_from(0)[i];
      for (int block = 1; block < part.group; ++block) sum += sums_from(block)[i];
      const int at = i * part.group + rank;
      store(first_unit, 0, at / kRows, at % kRows, sum);
    }
  }

  __device__ __forceinline__ void stream() {
    const int row_bytes = static_cast<int>(weight_row_bytes<W>(p.in));
    const int x_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
    Cursor load = start();
    {
      Cursor early = load;
      for (int stage = 0; stage < p.stages; ++stage) {
        if (early.unit < part.units) {
          Lines::load_weights(ring + stage * Lines::kStage, early.from, early.line, row_bytes,
                              p.blocks);
          advance(early);
        }
        commit_copies();
      }
    }
    wait_for_previous();
    for (int stage = 0; stage < p.stages; ++stage) {
      if (load.unit < part.units) {
        Lines::load_activations(ring + stage * Lines::kStage, load.from, load.line, x_bytes,
                                p.blocks);
        advance(load);
      }
      commit_copies();
    }
    char* stage = ring;
    int buffer = 0;
    for (int unit = first_unit; unit < part.units; unit += part.stride, buffer ^= 1) {
      Sum sum[MT][NT][4] = {};
      for (int line = begin; line < end; ++line) {
        Lines::wait(p.stages);
        Lines::multiply(stage, sum);
        if (load.unit < part.units) {
          Lines::load_weights(stage, load.from, load.line, row_bytes, p.blocks);
          Lines::load_activations(stage, load.from, load.line, x_bytes, p.blocks);
          advance(load);
        }
        commit_copies();
        stage = stage == ring + (p.stages - 1) * Lines::kStage ? ring : stage + Lines::kStage;
      }
      finish(unit, sum, buffer);
    }
  }
};

template <class W, int MT, int NT, bool kAligned>
__global__ void __launch_bounds__(kProductThreads, kAligned&& MT* NT == 1 ? 3 : 1)
    product_kernel(const __grid_constant__ ProductParams p) {
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  if (p.cluster > 1) cluster_arrive_relaxed();
  Product<W, MT, NT, kAligned> product(p, shared);
  const bool works = product.first_unit < product.part.units;
  if (works) {
    product.stream();
  } else {
    wait_for_previous();
    if (p.cluster > 1) cluster_wait();
  }
  if (p.cluster == 1) return;
  cluster_sync();  // all sums have come
  if (works && product.part.group > 1) product.finish_group();
}

// What does not depend on a kernel's tiles of rows; rows_to_units(rows, warps) tells those. Returns a warp's most
// lines.
template <class W, class RowsToUnits>
int64_t divide(ProductParams& p, int tile_tokens, const RowsToUnits& rows_to_units) {
  p.lines = static_cast<int>(num_tiles(p.in, kLineWidth<W>));
  p.blocks = static_cast<int>(num_tiles(p.in, kScaleBlock));
  p.token_tiles = static_cast<int>(num_tiles(p.tokens, tile_tokens));
  int64_t per_warp = 0;
  for (ProductPart* part : {&p.a, &p.b}) {
    if (part->rows == 0) continue;
    const Split split =
        choose_split(*part, p.lines, int64_t{num_tiles(part->rows, kTileRows)} * p.heads);
    part->warps = split.warps;
    part->group = split.group;
    part->units = rows_to_units(part->rows, split.warps) * p.token_tiles;
    p.cluster = std::max(p.cluster, split.group);
    per_warp = std::max<int64_t>(per_warp, num_tiles(p.lines, split.warps * split.group));
  }
  return per_warp;
}

// How the grid's blocks belong to the parts; `groups` walk over a part's units. Returns the number of blocks.
template <class Groups>
unsigned place_parts(ProductParams& p, const Groups& groups) {
  unsigned blocks = 0;
  for (ProductPart* part : {&p.a, &p.b}) {
    part->stride = std::max(1, groups(*part));
    blocks += num_tiles(std::min(part->units, part->stride) * part->group, p.cluster) *
              static_cast<unsigned>(p.cluster);
    if (part == &p.a) p.blocks_a = static_cast<int>(blocks);
  }
  return blocks;
}

template <class W, int MT, int NT, bool kAligned>
void launch_product(ProductParams p, ops::Stream& stream) {
  using Kernel = Product<W, MT, NT, kAligned>;
  static_assert(Kernel::shared_bytes(2) <= 227 << 10);
  const int64_t per_warp = divide<W>(p, Kernel::kTokens, [](int rows, int warps) {
    return static_cast<int>(num_tiles(num_tiles(rows, kTileRows), kBlockWarps / warps * MT));
  });
  const int64_t wanted =
      (int64_t{p.a.units} * p.a.group + int64_t{p.b.units} * p.b.group) * p.heads;
  // Many blocks on a multiprocessor have as much under way with shorter rings.
  const int most_stages = MT * NT > 1 || wanted > 2 * num_multiprocessors() ? 2
                          : wanted > num_multiprocessors()                  ? 3
                                                                            : 4;
  p.stages = choose_stages(p, per_warp, stages_for(per_warp, most_stages));
  const int resident = num_multiprocessors() *
                       std::clamp((227 << 10) / (Kernel::shared_bytes(p.stages) + 1024), 1, 3);
  const bool walks = p.cluster == 1 && p.b.rows == 0 && wanted > 2 * resident;
  const unsigned blocks = place_parts(
      p, [&](const ProductPart& part) { return walks ? resident / p.heads : part.units; });
  launch(product_kernel<W, MT, NT, kAligned>,
         {.grid = dim3(blocks, 1, static_cast<unsigned>(p.heads)),
          .block = kProductThreads,
          .shared_bytes = Kernel::shared_bytes(p.stages),
          .cluster = p.cluster},
         stream, p);
}

// Whether all rows can be read in pieces of 16 bytes.
template <class W>
bool rows_are_aligned(const ProductParams& p) {
  const auto aligned = [](auto value) { return value % 16 == 0; };
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  return aligned(weight_row_bytes<W>(p.in)) && aligned(p.in * sizeof(RowOf<W>)) &&
         aligned(address(p.x)) && aligned(p.x_stride_bytes) && aligned(p.x_head_bytes) &&
         aligned(address(p.a.weight)) && aligned(address(p.b.weight)) &&
         aligned(p.a.weight_head_bytes);
}

}  // namespace fathom::cuda
