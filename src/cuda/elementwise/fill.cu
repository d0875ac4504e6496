// fill_from_table. Bound by memory: what is filled is written once, 16 bytes a thread; the table stays in the L2 cache.
// Grid: one block per row and block of positions that the row may touch. No shared memory.

#include <limits>

#include "cuda/elementwise/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/fill_from_table.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 16;  // bytes

struct FillParams {
  char* out;          // [rows, columns], rows out_stride bytes apart
  const char* table;  // [elements]
  int64_t out_stride, columns, elements;
  uint64_t seed, key;
  int64_t first, row_elements;
  int element_bytes;
  unsigned blocks_of_row;  // no row touches more
};

// 16 bytes from anywhere, by the aligned words that they lie in.
__device__ __forceinline__ uint4 load_piece(const char* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto* const words = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
  const unsigned shift = static_cast<unsigned>(address & 3) * 8;
  uint32_t w[5];
  for (int i = 0; i < 4; ++i) w[i] = words[i];
  w[4] = shift == 0 ? 0 : words[4];
  return {__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
          __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift)};
}

// By all threads of a block.
__device__ __forceinline__ void copy_bytes(char* to, const char* from, int count) {
  const int to_aligned = static_cast<int>(-reinterpret_cast<uintptr_t>(to) & (kPiece - 1));
  const int head = min(count, to_aligned), pieces = (count - head) / kPiece;
  const int tail = head + pieces * kPiece, thread = static_cast<int>(threadIdx.x);
  if (thread < head) to[thread] = from[thread];
  for (int i = thread; i < pieces; i += kThreads) {
    const int at = head + i * kPiece;
    *reinterpret_cast<uint4*>(to + at) = load_piece(from + at);
  }
  if (thread < count - tail) to[tail + thread] = from[tail + thread];
}

__global__ void __launch_bounds__(kThreads)
    fill_from_table_kernel(const __grid_constant__ FillParams p) {
  let_next_start();
  const int64_t row = blockIdx.x / p.blocks_of_row;
  const int64_t row_begin = p.first + row * p.row_elements;
  const int64_t block = row_begin / ops::kTableBlock + blockIdx.x % p.blocks_of_row;
  const int64_t block_begin = block * ops::kTableBlock;
  const int64_t begin = max(block_begin, row_begin);
  const int64_t end = min(block_begin + ops::kTableBlock, row_begin + p.columns);
  const int64_t place = ops::table_offset(p.seed, p.key, block, p.elements) + (begin - block_begin);
  wait_for_previous();
  if (begin >= end) return;
  copy_bytes(p.out + row * p.out_stride + (begin - row_begin) * p.element_bytes,
             p.table + place * p.element_bytes, static_cast<int>(end - begin) * p.element_bytes);
}

}  // namespace

void fill_from_table(const ops::FillFromTableArgs& args, ops::Stream& stream) {
  const int64_t rows = args.out.dim(0), columns = args.out.dim(1);
  if (rows == 0 || columns == 0) return;
  const int64_t bytes = tensor::dtype_bytes(args.out.dtype());
  // Later rows begin anywhere in a block.
  const int64_t begin_in_block = rows == 1 ? args.first % ops::kTableBlock : ops::kTableBlock - 1;
  const unsigned blocks = num_tiles(begin_in_block + columns, ops::kTableBlock);
  const int64_t grid = rows * blocks;
  FATHOM_CHECK(grid <= std::numeric_limits<int32_t>::max(),
               "too much to fill at once: " << args.out.describe());
  const FillParams params{.out = static_cast<char*>(args.out.data()),
                          .table = static_cast<const char*>(args.table.data()),
                          .out_stride = args.out.stride(0) * bytes,
                          .columns = columns,
                          .elements = args.table.dim(0),
                          .seed = args.seed,
                          .key = args.key,
                          .first = args.first,
                          .row_elements = args.row_elements,
                          .element_bytes = static_cast<int>(bytes),
                          .blocks_of_row = blocks};
  launch(fill_from_table_kernel, {.grid = static_cast<unsigned>(grid), .block = kThreads}, stream,
         params);
}

}  // namespace fathom::cuda
