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
  static constexpr int kPieces = kWarps * 2048 + kColumns * 1024;
  static constexpr int kStage = kPieces + (Lines::kScaled ? kWarps * 16 + kTokens * 4 : 0);
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
    const char* x[kColumns * 2 / kWarps];  // this thread's pieces of the tokens
    const float* x_scale;
  };
  __device__ __forceinline__ Source source() const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = first_row + warp * kTileRows + lane / 4, last = part.rows - 1;
    const char* const weight = part.weight + blockIdx.z * part.weight_head_bytes + lane % 4 * 16;
    const int64_t row_bytes = int64_t{p.in} * sizeof(W);
    Source from;
    from.weight[0] = weight + min(row, last) * row_bytes;
    from.weight[1] = weight + min(row + 8, last) * row_bytes;
#pragma unroll
    for (int i = 0; i < kColumns * 2 / kWarps; ++i) {
      const int slot = i * kWarps + warp, token = first_token + slot / 2 * kTileTokens + lane / 4;
      from.x[i] = p.x + blockIdx.z * p.x_head_bytes + min(token, p.tokens - 1) * p.x_stride_bytes +
                  (lane % 4 + slot % 2 * 4) * Lines::kPieceX;
    }
    if constexpr (Lines::kScaled) {
      const int block = min(first_row + warp * kTileRows, last) / kScaleBlock;
      const int token = first_token + static_cast<int>(threadIdx.x);
      const bool loads = static_cast<int>(threadIdx.x) < kTokens && token < p.tokens;
      const float* const w_scale = part.w_scale + blockIdx.z * part.w_scale_head;
      const float* const x_scale = p.x_scale + int64_t{blockIdx.z} * p.lines;
      from.w_scale = lane == 0 ? w_scale + int64_t{block} * p.lines : nullptr;
      from.x_scale = loads ? x_scale + int64_t{token} * p.heads * p.lines : nullptr;
    }
    return from;
  }

  // Zeros behind the end of a row: offsets within the line's row.
  __device__ __forceinline__ void load_weights(char* stage, const Source& from, int line) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_bytes = p.in * static_cast<int>(sizeof(W)), mine = lane % 4 * 16;
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      const int offset = line * kLineBytes + piece % 2 * 64;
      const bool valid = offset + mine < row_bytes;
      copy_async_16(shared_address(stage + warp * 2048 + piece * 512 + lane * 16),
                    from.weight[piece / 2] + (valid ? offset : 0), valid);
    }
    if constexpr (Lines::kScaled) {
      if (from.w_scale != nullptr)
        copy_async_small<4>(shared_address(stage + kPieces + warp * 16), from.w_scale + line, true);
    }
  }
  __device__ __forceinline__ void load_tokens(char* stage, const Source& from, int line) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row_bytes = p.in * static_cast<int>(sizeof(typename Lines::X));
#pragma unroll
    for (int i = 0; i < kColumns * 2 / kWarps; ++i) {
      const int slot = i * kWarps + warp, offset = line * Lines::kLineX;
      const bool valid = offset + (lane % 4 + slot % 2 * 4) * Lines::kPieceX < row_bytes;
      copy_async_16(shared_address(stage + kWarps * 2048 + slot * 512 + lane * 16),
                    from.x[i] + (valid ? offset : 0), valid);
    }
    if constexpr (Lines::kScaled) {
      if (from.x_scale != nullptr)
        copy_async_small<4>(shared_address(stage + kPieces + kWarps * 16 + threadIdx.x * 4),
                            from.x_scale + line, true);
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
    float total[1][kColumns][4], sum[1][kColumns][4] = {};
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
      Lines::multiply(stage + warp * 2048, stage + kWarps * 2048, scales + warp * 16,
                      scales + kWarps * 16, sum);
      if (line + 1 < next) continue;
#pragma unroll
      for (int i = 0; i < kColumns * 4; ++i) {
        float& all = total[0][i / 4][i % 4];
        all = index == 0 ? sum[0][i / 4][i % 4] : all + sum[0][i / 4][i % 4];
        sum[0][i / 4][i % 4] = 0;
      }
      next = part_begin(++index + 1);
    }
    wait_copies<0>();
    __syncthreads();
    float* const sums = reinterpret_cast<float*>(shared) + warp * kTileRows;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kColumns * 4; ++i)
      sums[(i / 4 * kTileTokens + lane % 4 * 2 + i % 2) * kSumStride + lane / 4 + i % 4 / 2 * 8] =
          total[0][i / 4][i % 4];
  }

  // REQUIRES: the sums of all blocks of the group are there.
  __device__ __forceinline__ void store() const {
    const float* const sums = reinterpret_cast<const float*>(shared);
    const uint32_t first = part.group > 1 ? cluster_rank() - static_cast<uint32_t>(rank) : 0;
    for (int i = threadIdx.x; i < kTokens * kRows; i += kThreads) {
      const int row = first_row + i % kRows, token = first_token + i / kRows;
      if (i % part.group != rank || row >= part.rows || token >= p.tokens) continue;
      const float* const mine = sums + i / kRows * kSumStride + i % kRows;
      float value = part.group > 1 ? load_remote(shared_address(mine), first) : *mine;
      for (int other = 1; other < part.group; ++other)
        value += load_remote(shared_address(mine), first + static_cast<uint32_t>(other));
      store_product(p, part, token, row, value);
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

}  // namespace fathom::cuda
