#pragma once
// The product of product.cuh for more tokens, where reading the activations again for every 16 rows would cost more
// than the weights do: the warps of a block have rows of their own and share the tokens. A warp goes through the
// parts of the inner dimension that product.cuh gives to the warps of a block and adds their sums in the same order,
// so rows have the same bits.
//
// Grid: x = units (64 rows, 64 tokens) times the group's blocks, z = heads. Shared memory: stages of lines, [warp]
// pieces of weights, then the tokens' pieces, then scales; at the end the block's sums [token, row].

#include "cuda/linear/product.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

template <class W>
struct WideProduct {
  static constexpr int kWarps = 4, kColumns = 8, kStages = 4, kThreads = kWarps * 32;
  static constexpr int kRows = kWarps * kTileRows, kTokens = kColumns * kTileTokens;
  using Lines = LineStream<W, 1, kColumns, true>;
  using Sum = typename Lines::Sum;
  static constexpr int kWeights = kWarps * Lines::kTileBytes,
                       kPieces = kWeights + kColumns * Lines::kColumnBytes;
  // Bytes of the scales of a warp's rows; at least 16.
  static constexpr int kWeightScales = kRowScales<W> ? Lines::kWeightScaleBytes : 16;
  static constexpr int kStage =
      kPieces + (Lines::kScaled ? kWarps * kWeightScales + kTokens * 4 * Lines::kBlocks : 0);
  static constexpr int kSumStride = kRows + 4;  // keeps the banks apart
  static constexpr int kSharedBytes = std::max(kStages * kStage, kTokens* kSumStride * 4);

  const ProductParams& p;
  const ProductPart& part;
  char* shared;
  int rank, unit, first_row, first_token;

  __device__ __forceinline__ WideProduct(const ProductParams& params, char* shared_memory)
      : p(params),
        part(static_cast<int>(blockIdx.x) < params.blocks_a ? params.a : params.b),
        shared(shared_memory) {
    const int block = static_cast<int>(blockIdx.x) - (&part == &p.a ? 0 : p.blocks_a);
    rank = block % part.group;
    unit = block / part.group;
    first_row = unit / p.token_tiles * kRows;
    first_token = unit % p.token_tiles * kTokens;
  }

  // Where a part of the inner dimension begins; `index` counts this block's.
  __device__ __forceinline__ int part_begin(int index) const {
    return (rank * part.warps + index) * p.lines / (part.group * part.warps);
  }

  struct Source {
    const char* weight[2];
    const float* w_scale;
    const char* x[kColumns * Lines::kPiecesX / kWarps];  // this thread's pieces of the tokens
    const float* x_scale;
  };
  __device__ __forceinline__ Source source() const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = first_row + warp * kTileRows + lane / 4, last = part.rows - 1;
    const char* const weight = part.weight + blockIdx.z * part.weight_head_bytes;
    const int64_t row_bytes = weight_row_bytes<W>(p.in);
    Source from;
    from.weight[0] = weight + min(row, last) * row_bytes;
    from.weight[1] = weight + min(row + 8, last) * row_bytes;
#pragma unroll
    for (int i = 0; i < kColumns * Lines::kPiecesX / kWarps; ++i) {
      const int slot = i * kWarps + warp,
                token = first_token + slot / Lines::kPiecesX * kTileTokens + lane / 4;
      from.x[i] = p.x + blockIdx.z * p.x_head_bytes + min(token, p.tokens - 1) * p.x_stride_bytes +
                  Lines::token_offset(lane % 4, slot % Lines::kPiecesX);
    }
    if constexpr (Lines::kScaled) {
      const int scale_row = first_row + warp * kTileRows + lane * Lines::kRowsOfScale;
      const int block = kRowScales<W> ? min(scale_row, last) : min(scale_row, last) / kScaleBlock;
      const int token = first_token + static_cast<int>(threadIdx.x);
      const bool loads = static_cast<int>(threadIdx.x) < kTokens && token < p.tokens;
      const float* const w_scale = part.w_scale + blockIdx.z * part.w_scale_head;
      const float* const x_scale = p.x_scale + int64_t{blockIdx.z} * p.blocks;
      from.w_scale = lane < Lines::kScaleLanes ? w_scale + int64_t{block} * p.blocks : nullptr;
      from.x_scale = loads ? x_scale + int64_t{token} * p.heads * p.blocks : nullptr;
    }
    return from;
  }

  // Zeros behind the end of a row: offsets within the line's row.
  __device__ __forceinline__ void load_weights(char* stage, const Source& from, int line) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Lines::load_tile(stage + warp * Lines::kTileBytes, from.weight, line,
                     static_cast<int>(weight_row_bytes<W>(p.in)));
    if constexpr (Lines::kScaled) {
      if (from.w_scale != nullptr)
        Lines::load_scales(stage + kPieces + warp * kWeightScales + lane * 4 * Lines::kBlocks,
                           from.w_scale, line, p.blocks);
    }
  }
  __device__ __forceinline__ void load_tokens(char* stage, const Source& from, int line) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
#pragma unroll
    for (int i = 0; i < kColumns * Lines::kPiecesX / kWarps; ++i) {
      const int slot = i * kWarps + warp, offset = line * Lines::kLineX;
      const bool valid = offset + Lines::token_offset(lane % 4, slot % Lines::kPiecesX) < row_bytes;
      copy_async_16(shared_address(stage + kWeights + slot * 512 + lane * 16),
                    from.x[i] + (valid ? offset : 0), valid);
    }
    if constexpr (Lines::kScaled) {
      if (from.x_scale != nullptr)
        Lines::load_scales(
            stage + kPieces + kWarps * kWeightScales + threadIdx.x * 4 * Lines::kBlocks,
            from.x_scale, line, p.blocks);
    }
  }

  // The block's sums, in shared memory.
  __device__ __forceinline__ void stream() {
    const int begin = part_begin(0), end = part_begin(part.warps), warp = threadIdx.x / 32;
    const Source from = source();
    for (int i = 0; i < kStages - 1; ++i)
      if (begin + i < end) load_weights(shared + i * kStage, from, begin + i);
    wait_for_previous();
    for (int i = 0; i < kStages - 1; ++i) {
      if (begin + i < end) load_tokens(shared + i * kStage, from, begin + i);
      commit_copies();
    }
    Sum total[1][kColumns][4], sum[1][kColumns][4] = {};
    int index = 0, next = part_begin(1);
    for (int line = begin; line < end; ++line) {
      wait_copies<kStages - 2>();
      __syncthreads();  // this line is there for all, and nobody reads the one before
      const int ahead = line + kStages - 1;
      if (ahead < end) {
        load_weights(shared + (ahead - begin) % kStages * kStage, from, ahead);
        load_tokens(shared + (ahead - begin) % kStages * kStage, from, ahead);
      }
      commit_copies();
      const char* const stage = shared + (line - begin) % kStages * kStage;
      const char* const scales = stage + kPieces;
      Lines::multiply(stage + warp * Lines::kTileBytes, stage + kWeights,
                      scales + warp * kWeightScales, scales + kWarps * kWeightScales, sum);
      if (line + 1 < next) continue;
#pragma unroll
      for (int i = 0; i < kColumns * 4; ++i) {
        Sum& all = total[0][i / 4][i % 4];
        all = index == 0 ? sum[0][i / 4][i % 4] : all + sum[0][i / 4][i % 4];
        sum[0][i / 4][i % 4] = 0;
      }
      next = part_begin(++index + 1);
    }
    wait_copies<0>();
    __syncthreads();
    Sum* const sums = reinterpret_cast<Sum*>(shared) + warp * kTileRows;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kColumns * 4; ++i)
      sums[(i / 4 * kTileTokens + lane % 4 * 2 + i % 2) * kSumStride + lane / 4 + i % 4 / 2 * 8] =
          total[0][i / 4][i % 4];
  }

  // REQUIRES: the sums of all blocks of the group are there.
  __device__ __forceinline__ void store() const {
    const Sum* const sums = reinterpret_cast<const Sum*>(shared);
    const uint32_t first = part.group > 1 ? cluster_rank() - static_cast<uint32_t>(rank) : 0;
    for (int i = threadIdx.x; i < kTokens * kRows; i += kThreads) {
      const int row = first_row + i % kRows, token = first_token + i / kRows;
      if (i % part.group != rank || row >= part.rows || token >= p.tokens) continue;
      const Sum* const mine = sums + i / kRows * kSumStride + i % kRows;
      Sum value = part.group > 1 ? load_remote_sum(mine, first) : *mine;
      for (int other = 1; other < part.group; ++other)
        value += load_remote_sum(mine, first + static_cast<uint32_t>(other));
      store_product(p, part, token, row, scaled<W>(p, part, token, row, value));
    }
  }
};

template <class W>
__global__ void __launch_bounds__(WideProduct<W>::kThreads, 2)
    wide_product_kernel(const __grid_constant__ ProductParams p) {
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  WideProduct<W> product(p, shared);
  const bool works = product.unit < product.part.units;
  if (works) {
    product.stream();
  } else {
    wait_for_previous();
  }
  __syncthreads();
  if (p.cluster > 1) cluster_sync();
  if (works) product.store();
  if (p.cluster > 1) cluster_sync();  // nobody leaves while its sums are read
}

// Fewer blocks than this leave too much of the machine without work; the kernel of product.cuh has more.
template <class W>
bool wide_is_better(const ProductParams& p) {
  const int64_t enough_blocks = part_of_device(160, num_multiprocessors());
  using Kernel = WideProduct<W>;
  const int64_t units = num_tiles(p.a.rows, Kernel::kRows) + num_tiles(p.b.rows, Kernel::kRows);
  return units * num_tiles(p.tokens, Kernel::kTokens) * p.heads >= enough_blocks;
}

template <class W>
void launch_wide_product(ProductParams p, ops::Stream& stream) {
  using Kernel = WideProduct<W>;
  divide<W>(p, Kernel::kTokens,
            [](int rows, int) { return static_cast<int>(num_tiles(rows, Kernel::kRows)); });
  const unsigned blocks = place_parts(p, [](const ProductPart& part) { return part.units; });
  launch(wide_product_kernel<W>,
         {.grid = dim3(blocks, 1, static_cast<unsigned>(p.heads)),
          .block = Kernel::kThreads,
          .shared_bytes = Kernel::kSharedBytes,
          .cluster = p.cluster},
         stream, p);
}

// By the rows and whether they are aligned; of one matrix's rows all have the same bits.
template <class W>
void run_product_of(const ProductParams& params, ops::Stream& stream) {
  if (!rows_are_aligned<W>(params)) return launch_product<W, 1, 1, false>(params, stream);
  if (params.tokens <= 8) return launch_product<W, 1, 1, true>(params, stream);
  if (params.tokens <= 16) return launch_product<W, 1, 2, true>(params, stream);
  constexpr int kTiles = kIsI4<W> ? 1 : 2;  // lines of two blocks leave no room for more
  if (params.tokens <= 32 || !wide_is_better<W>(params))
    return launch_product<W, kTiles, 4, true>(params, stream);
  launch_wide_product<W>(params, stream);
}

}  // namespace fathom::cuda
