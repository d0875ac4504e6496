#include "cuda/gemm/few_rows_bf16.h"

#include "cuda/device/convert.cuh"
#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/gate_up_map.h"
#include "cuda/gemm/stage_ring.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

// Persistent, warp-specialised: one or four warps load, two warpgroups multiply (wgmma) with the weights as the
// instruction's 64 rows and tokens as its columns. Bound by memory: each expert's weights are read once.
//
// A task is a tile of rows and 128 rows of the weight: of down as they lie, of gate and up eight rows of each in turn,
// so that both of a column are one thread's. A stage is 64 channels. k rises, as in product_kernel.cuh.
//
// Grid: all multiprocessors, over tasks in turn. Shared memory: stages of 24 KB, of which 16 are weights.

namespace fathom::cuda {
namespace {

using tensor::Bf16;

constexpr int kWeightRows = 128, kGroupRows = kGateUpGroupRows, kGroups = kWeightRows / kGroupRows;
constexpr int kMultiplyingThreads = 256;
// Rows of gate and up are copied by all threads that load.
template <bool kGated>
constexpr int kLoadingThreads = kGated ? 128 : 32;
template <bool kGated>
constexpr int kFewThreads = kMultiplyingThreads + kLoadingThreads<kGated>;
// Columns of out that a task makes.
template <bool kGated>
constexpr int kTaskColumns = kGated ? kWeightRows / 2 : kWeightRows;
constexpr int kChannels = 64, kRowBytes = kChannels * 2;  // of a stage

struct FewRowsShared {
  static constexpr int kStages = 9;
  struct Stage {
    uint8_t weights[kWeightRows][kRowBytes];
    uint8_t tokens[kFewTileRows][kRowBytes];
  };
  Stage stages[kStages];
  uint64_t full[kStages], empty[kStages];
};
static_assert(sizeof(FewRowsShared) <= (227 << 10));

struct FewRowsParams {
  CUtensorMap weight;  // gated_map() or rows_map()
  CUtensorMap shared;  // the same, of the shared experts
  CUtensorMap x;       // down: boxes of kGroupAlignment rows
  const char* rows;    // gate and up
  int64_t row_bytes;
  GroupTiles tiles;
  const int* token_of_row;
  Bf16* out;
  int steps, n, columns;  // of 64 channels; tasks beside each other
  int experts;            // without the shared ones
};

using FewRowsRing = StageRing<FewRowsShared>;

// The last tiles first: the shared experts', which have the most rows.
template <class Take>
__device__ __forceinline__ void for_each_task(const FewRowsParams& p, const Take& take) {
  const int tasks = *p.tiles.count * p.columns;
  for (int task = tasks - 1 - static_cast<int>(blockIdx.x); task >= 0;
       task -= static_cast<int>(gridDim.x))
    take(p.tiles.tiles[task / p.columns], task % p.columns);
}

// Who loads: one thread the weights, by TMA. Of down it also loads the rows, which lie behind each other; of gate and
// up four warps copy them 16 bytes at a time, because the copy engine takes too long for boxes of a row.
template <bool kGated>
class Loader {
 public:
  __device__ __forceinline__ Loader(const FewRowsParams& params, FewRowsShared& shared)
      : p_(params), shared_(shared) {}

  // What no kernel before writes, before the wait for it: the first weights of down.
  __device__ __forceinline__ void load_early() {
    FewRowsRing ring{shared_};
    for_each_task(p_, [&](const GroupTile& tile, int column) {
      for (int k = 0; k < p_.steps && early_ < FewRowsShared::kStages;
           ++k, ring.advance(), ++early_)
        if (thread_ == 0) load_weights(ring, tile, column, k);
    });
  }
  __device__ __forceinline__ void load() {
    FewRowsRing ring{shared_};
    for_each_task(p_, [&](const GroupTile& tile, int column) {
      if constexpr (kGated) find_rows(tile);
      for (int k = 0; k < p_.steps; ++k, ring.advance()) {
        if (early_ > 0) {
          --early_;
        } else {
          barrier_wait(ring.empty(), ring.parity ^ 1);
          if (thread_ == 0) load_weights(ring, tile, column, k);
        }
        if constexpr (kGated) {
          copy_rows(ring, tile, k);
        } else if (thread_ == 0) {
          load_rows(ring, tile, k);
        }
      }
    });
  }

 private:
  // Pieces of 16 bytes of a row; rows that the warp copies at a time, and times.
  static constexpr int kPieces = kRowBytes / 16, kRowsApart = kLoadingThreads<kGated> / kPieces;
  static constexpr int kRows = kFewTileRows / kRowsApart;

  __device__ __forceinline__ static int boxes_of(const GroupTile& tile) {
    return (tile.num_rows + kGroupAlignment - 1) / kGroupAlignment;
  }
  __device__ __forceinline__ void load_weights(const FewRowsRing& ring, const GroupTile& tile,
                                               int column, int k) const {
    const int rows = kGated ? 0 : boxes_of(tile) * kGroupAlignment;
    barrier_expect(ring.full(), sizeof((*ring).weights) + static_cast<uint32_t>(rows) * kRowBytes);
    const uint32_t to = shared_address((*ring).weights);
    const int part = tile.group - p_.experts;  // of the shared experts
    const CUtensorMap* const map = part < 0 ? &p_.weight : &p_.shared;
    if constexpr (kGated) {
      const int groups = p_.n / kGroupRows * max(part, 0) + column * (kGroups / 2);
      load_tile(map, to, ring.full(), {k * kRowBytes, 0, 0, groups, part < 0 ? tile.group : 0});
    } else {
      load_tile(map, to, ring.full(), (p_.steps * max(part, 0) + k) * kChannels,
                p_.n * (part < 0 ? tile.group : 0) + column * kWeightRows);
    }
  }
  __device__ __forceinline__ void load_rows(const FewRowsRing& ring, const GroupTile& tile,
                                            int k) const {
    for (int row = 0; row < tile.num_rows; row += kGroupAlignment)
      load_tile(&p_.x, shared_address((*ring).tokens[row]), ring.full(), k * kChannels,
                tile.row + row);
  }
  __device__ __forceinline__ void find_rows(const GroupTile& tile) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kRowsApart + thread_ / kPieces;
      from_[i] = row < tile.num_rows ? p_.token_of_row[tile.row + row] : -1;
    }
  }
  // Swizzled as the copy engine does.
  __device__ __forceinline__ void copy_rows(const FewRowsRing& ring, const GroupTile& tile,
                                            int k) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i * kRowsApart >= tile.num_rows) break;
      const int row = i * kRowsApart + thread_ / kPieces, piece = thread_ % kPieces;
      if (from_[i] >= 0)
        copy_async_16(shared_address((*ring).tokens[row]) + (piece ^ row % 8) * 16,
                      p_.rows + from_[i] * p_.row_bytes + k * kRowBytes + piece * 16, true);
    }
    barrier_arrive_after_copies(ring.full());
  }

  const FewRowsParams& p_;
  FewRowsShared& shared_;
  int thread_ = static_cast<int>(threadIdx.x) - kMultiplyingThreads;
  int early_ = 0;  // stages whose weights are under way
  int from_[kRows] = {};
};

// This lane has column `at` of two neighbouring rows of out, and another lane the column beside it: each stores both
// columns of one row.
__device__ __forceinline__ void store_two(const FewRowsParams& p, const GroupTile& tile, int row,
                                          int at, float first, float second) {
  const bool odd = at % 2 != 0;
  const float other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
  const int mine = row + (odd ? 1 : 0);
  if (mine < tile.num_rows)
    *reinterpret_cast<uint32_t*>(p.out + (int64_t{tile.row} + mine) * p.n + at / 2 * 2) =
        odd ? floats_to_bf16x2(other, second) : floats_to_bf16x2(first, other);
}

// Up to kTokens rows.
template <bool kGated, int kTokens>
__device__ __forceinline__ void multiply_task(const FewRowsParams& p, FewRowsRing& ring,
                                              const GroupTile& tile, int column) {
  constexpr int kSums = kTokens / 2;  // of a thread
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kSums];
  for (int k = 0; k < p.steps; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.parity);
    if constexpr (kGated) show_to_engines();  // what threads copied
    const uint32_t a = descriptor_word(shared_address((*ring).weights[warp / 4 * 64]));
    const uint32_t b = descriptor_word(shared_address((*ring).tokens));
    mma_begin(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), k > 0 || i > 0, Bf16{});
    mma_commit();
    mma_wait<0>(sums);
    if (lane == 0) barrier_arrive(ring.empty());
  }
  const int at = column * kTaskColumns<kGated> + warp * (kTaskColumns<kGated> / 8) + lane / 4;
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const int row = i * 2 + lane % 4 * 2;
    if constexpr (kGated) {
      store_two(p, tile, row, at, silu_mul(sums[i], sums[i + 2]),
                silu_mul(sums[i + 1], sums[i + 3]));
    } else {
      store_two(p, tile, row, at, sums[i], sums[i + 1]);
      store_two(p, tile, row, at + kGroupRows, sums[i + 2], sums[i + 3]);
    }
  }
}

// Before the wait down reads the tiles, which were made before gate and up began, and weights.
template <bool kGated>
__global__ void __launch_bounds__(kFewThreads<kGated>, 1)
    few_rows_bf16_kernel(const __grid_constant__ FewRowsParams p) {
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  FewRowsShared& shared = *reinterpret_cast<FewRowsShared*>(shared_bytes);
  if (threadIdx.x == 0) {
    prefetch_map(&p.weight), prefetch_map(&p.x);
    for (int i = 0; i < FewRowsShared::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), kGated ? 1 + kLoadingThreads<kGated> : 1);
      barrier_init(shared_address(&shared.empty[i]), kMultiplyingThreads / 32);
    }
    barriers_are_ready();
  }
  __syncthreads();
  if (threadIdx.x >= kMultiplyingThreads) {
    Loader<kGated> loader(p, shared);
    if constexpr (!kGated) loader.load_early();
    wait_for_previous();
    let_next_start();
    return loader.load();
  }
  wait_for_previous();
  let_next_start();
  FewRowsRing ring{shared};
  for_each_task(p, [&](const GroupTile& tile, int column) {
    if (tile.num_rows <= 16) return multiply_task<kGated, 16>(p, ring, tile, column);
    if (tile.num_rows <= 32) return multiply_task<kGated, 32>(p, ring, tile, column);
    multiply_task<kGated, 64>(p, ring, tile, column);
  });
}

CUtensorMap gated_map(const Bf16* weight, int64_t experts, int64_t n, int64_t k) {
  return gate_up_map({.weights = weight,
                      .experts = experts,
                      .inter = n,
                      .row_bytes = k * static_cast<int64_t>(sizeof(Bf16))},
                     kWeightRows / 2);
}

// Rows of k, in boxes.
CUtensorMap rows_map(const Bf16* rows, int64_t count, int64_t k, int64_t stride, int box_rows) {
  return tensor_map(
      {.data = rows, .dtype = tensor::DType::kBf16, .rows = count, .columns = k, .stride = stride},
      box_rows);
}

template <bool kGated>
void set_weights(const FewRowsBf16Args& args, FewRowsParams& params) {
  const int64_t n = args.n, k = args.k, wide = args.shared * (kGated ? n : k);
  params.weight = kGated ? gated_map(args.weight, args.experts, n, k)
                         : rows_map(args.weight, args.experts * n, k, k, kWeightRows);
  if (args.shared == 0) return;
  params.shared = kGated ? gated_map(args.shared_weight, 1, wide, k)
                         : rows_map(args.shared_weight, n, wide, wide, kWeightRows);
}

template <bool kGated>
void run_few_rows_bf16(const FewRowsBf16Args& args, ops::Stream& stream) {
  FewRowsParams params{.weight = {},
                       .shared = {},
                       .x = rows_map(args.x, args.x_rows, args.k, args.x_stride, kGroupAlignment),
                       .rows = reinterpret_cast<const char*>(args.x),
                       .row_bytes = args.x_stride * static_cast<int64_t>(sizeof(Bf16)),
                       .tiles = args.tiles,
                       .token_of_row = args.token_of_row,
                       .out = args.out,
                       .steps = static_cast<int>(args.k / kChannels),
                       .n = static_cast<int>(args.n),
                       .columns = static_cast<int>(args.n / kTaskColumns<kGated>),
                       .experts = static_cast<int>(args.experts)};
  set_weights<kGated>(args, params);
  launch(few_rows_bf16_kernel<kGated>,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kFewThreads<kGated>,
          .shared_bytes = sizeof(FewRowsShared)},
         stream, params);
}

}  // namespace

bool takes_few_rows_bf16(Stored weight, int64_t inter, int64_t hidden_size) {
  return weight == Stored::kBf16 && inter % kChannels == 0 && hidden_size % kWeightRows == 0;
}

void few_rows_bf16(const FewRowsBf16Args& args, ops::Stream& stream) {
  args.token_of_row != nullptr ? run_few_rows_bf16<true>(args, stream)
                               : run_few_rows_bf16<false>(args, stream);
}

}  // namespace fathom::cuda
