#include "cuda/linear/batch_product.h"

#include <algorithm>

#include "cuda/gemm/tensor_map.h"
#include "cuda/linear/batch_params.h"
#include "cuda/linear/choose.h"
#include "cuda/linear/line.cuh"
#include "cuda/linear/plan.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

using tensor::DType;

struct Matrices {
  Matrix x, a, b;
};

// Heads lie within rows of x, and one after the other in the rows of the weight.
Matrices matrices_of(Stored stored, const ProductParams& p) {
  const DType dtype = row_dtype_of(stored);
  const int64_t element_bytes = tensor::dtype_bytes(dtype), in = p.in;
  const int64_t more_heads = p.heads - 1, row_bytes = stored_row_bytes(stored, in);
  const auto weight = [&](const ProductPart& part) {
    const int64_t head_rows = part.weight_head_bytes / row_bytes;
    const DType as = holds_pairs(stored) ? DType::kI8 : dtype;
    return Matrix{.data = part.weight,
                  .dtype = as,
                  .rows = more_heads * head_rows + part.rows,
                  .columns = row_bytes / tensor::dtype_bytes(as),
                  .stride = row_bytes / tensor::dtype_bytes(as)};
  };
  return {.x = {.data = p.x,
                .dtype = dtype,
                .rows = p.tokens,
                .columns = more_heads * (p.x_head_bytes / element_bytes) + in,
                .stride = p.x_stride_bytes / element_bytes},
          .a = weight(p.a),
          .b = weight(p.b)};
}

// What a line reads behind its head's part must be none of the next head's: zeros times infinity are no zeros.
bool heads_fit(DType dtype, const ProductParams& p, const Matrices& matrices) {
  const int64_t row_bytes = p.in * tensor::dtype_bytes(dtype);
  return p.heads == 1 ||
         (row_bytes % kLineBytes == 0 && p.a.weight_head_bytes % row_bytes == 0 &&
          p.x_head_bytes % 16 == 0 && matrices.x.columns <= matrices.x.stride && p.b.rows == 0);
}

int box_of(int tokens) { return tokens <= 32 ? 32 : tokens <= 64 ? 64 : tokens <= 96 ? 96 : 128; }

int64_t num_units(const ProductParams& p) {
  return int64_t{num_tiles(p.a.rows, kBatchRows)} + num_tiles(p.b.rows, kBatchRows);
}
// Columns of the tiles of many tokens that all run at once, each alone on a multiprocessor; 0: there are too many.
int box_of_many(const ProductParams& p) {
  for (const int box : {64, 128})
    if (num_units(p) * num_tiles(p.tokens, box) <= num_multiprocessors()) return box;
  return 0;
}
// Of heads, the narrowest tiles that all run at once with `others` blocks beside them: every block then has few rows to
// wait for.
int box_of_heads(const ProductParams& p, int64_t others) {
  const int64_t blocks = num_units(p) * p.heads;
  for (const int box : {32, 64, 96})
    if (blocks * num_tiles(p.tokens, box) + others <= int64_t{2} * num_multiprocessors())
      return box;
  return box_of(p.tokens);
}
// Whether each block finds a multiprocessor for itself: pairs fill the device, larger clusters do not.
bool fits_alone(int64_t blocks, int cluster) {
  return blocks <=
         (cluster <= 2 ? num_multiprocessors() : part_of_device(64, num_multiprocessors()));
}

CUtensorMap map_of_weight(Stored stored, const Matrix& matrix) {
  return holds_pairs(stored) ? plain_map(matrix, kBatchRows, kPairLineBytes)
                             : tensor_map(matrix, kBatchRows);
}

// Matrices of heads are small: they take any number of tokens, kMaxBatchTokens at a time. Of others that many are
// gemm/large.h's, but where takes_many_rows().
bool has_many_tokens(const ProductParams& p) { return p.tokens > kMaxBatchTokens; }

// Returns the number of blocks of a head.
unsigned divide(DType dtype, ProductParams& p) {
  p.lines = static_cast<int>(num_tiles(p.in * tensor::dtype_bytes(dtype), kLineBytes));
  unsigned blocks = 0;
  for (ProductPart* part : {&p.a, &p.b}) {
    if (part->rows == 0) continue;
    part->units = static_cast<int>(num_tiles(part->rows, kBatchRows));
    // Tiles of many tokens fill the device by themselves; a head's parts are so small that exchanging sums would take
    // longest.
    part->group = has_many_tokens(p) || p.heads > 1
                      ? 1
                      : choose_group(*part, p.lines, int64_t{part->units} * p.heads);
    p.cluster = std::max(p.cluster, part->group);
  }
  for (const ProductPart* part : {&p.a, &p.b}) {
    const int64_t mine = int64_t{part->units} * part->group;
    blocks += num_tiles(mine, p.cluster) * static_cast<unsigned>(p.cluster);
    if (part == &p.a) p.blocks_a = static_cast<int>(blocks);
  }
  return blocks;
}

bool can_map_all(Stored weight, const ProductParams& params) {
  const Matrices matrices = matrices_of(weight, params);
  return can_map(matrices.x) && can_map(matrices.a) &&
         (params.b.rows == 0 || can_map(matrices.b)) &&
         heads_fit(row_dtype_of(weight), params, matrices);
}

// `box`: columns of a block's tile.
BatchParams planned(Stored weight, const ProductParams& params, int box, unsigned& blocks) {
  const DType dtype = row_dtype_of(weight);
  const Matrices matrices = matrices_of(weight, params);
  const int box_tokens = std::min<int>(params.tokens, weight == Stored::kU4 ? kPairTokens : box);
  BatchParams batch{.x = tensor_map(matrices.x, box_tokens),
                    .a = map_of_weight(weight, matrices.a),
                    .b = params.b.rows > 0 ? map_of_weight(weight, matrices.b) : CUtensorMap{},
                    .product = params,
                    .box = box};
  const int64_t row_bytes = params.in * tensor::dtype_bytes(dtype);
  batch.x_head = static_cast<int>(params.x_head_bytes / tensor::dtype_bytes(dtype));
  batch.weight_head = static_cast<int>(params.a.weight_head_bytes / row_bytes);
  blocks = divide(dtype, batch.product);
  batch.alone = params.heads == 1 &&
                fits_alone(int64_t{blocks} * num_tiles(params.tokens, box), batch.product.cluster);
  return batch;
}

}  // namespace

bool takes_many_rows(Stored weight, const ProductParams& params) {
  return weight == Stored::kF8 && params.heads == 1 && box_of_many(params) > 0;
}

bool run_batch_product(Stored weight, const ProductParams& params, ops::Stream& stream) {
  const bool has_many = has_many_tokens(params) && params.heads == 1;
  if (weight == Stored::kF32 || weight == Stored::kI4 || params.in == 0 ||
      (has_many && !takes_many_rows(weight, params)) || !can_map_all(weight, params))
    return false;
  const int box = has_many           ? box_of_many(params)
                  : params.heads > 1 ? box_of_heads(params, /*others=*/0)
                                     : box_of(params.tokens);
  unsigned blocks = 0;
  const BatchParams batch = planned(weight, params, box, blocks);
  if (weight == Stored::kF8) {
    run_batch_f8(batch, blocks, stream);
  } else if (weight == Stored::kI8Blocks) {
    run_batch_i8_blocks(batch, blocks, stream);
  } else if (weight == Stored::kI8Channels) {
    run_batch_i8_channels(batch, blocks, stream);
  } else if (weight == Stored::kU4) {
    run_batch_u4(batch, blocks, stream);
  } else {
    run_batch_bf16(batch, blocks, stream);
  }
  return true;
}

bool takes_heads_of_batch(const ProductParams& params) {
  return params.tokens > kMaxStreamedTokens && params.heads > 1 && params.in > 0 &&
         can_map_all(Stored::kBf16, params);
}

BatchParams batch_of_heads(const ProductParams& params, int64_t others, unsigned& blocks) {
  return planned(Stored::kBf16, params, box_of_heads(params, others), blocks);
}

}  // namespace fathom::cuda
