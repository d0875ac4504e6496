#pragma once
// What the kernels of batch_product.cuh are given.
//
// Internal to cuda/linear/.

#include <cuda.h>

#include "cuda/linear/product.h"

namespace fathom::cuda {

inline constexpr int kBatchRows = 64, kMostGroup = 8;
// Of u4: bytes of a row that are multiplied with a line of the tokens, and tokens of a block.
inline constexpr int kPairLineBytes = 32, kPairTokens = 64;

struct BatchParams {
  // Boxes of a line of all tokens (of u4 of a tile of them) and of kBatchRows rows; b only if there is one.
  CUtensorMap x, a, b;
  ProductParams product;
  int box = 128;  // columns of a block's tile, of which the tokens are some: 32, 64, 96 or 128
  // All blocks run at once with one on a multiprocessor, whose shared memory each then has for itself.
  bool alone = false;
  int x_head = 0, weight_head = 0;  // columns of x and rows of the weight from one head to the next
};

// Of bf16 heads and at most kMaxBatchTokens, for kernels that do more than the product, by `others` blocks.
// blocks: of a head.
// REQUIRES: takes_heads_of_batch(params).
BatchParams batch_of_heads(const ProductParams& params, int64_t others, unsigned& blocks);

// One per type of weight, each in a file of its own. `blocks`: of a head.
void run_batch_bf16(const BatchParams& params, unsigned blocks, ops::Stream& stream);
void run_batch_f8(const BatchParams& params, unsigned blocks, ops::Stream& stream);
void run_batch_u4(const BatchParams& params, unsigned blocks, ops::Stream& stream);
void run_batch_i8_blocks(const BatchParams& params, unsigned blocks, ops::Stream& stream);
void run_batch_i8_channels(const BatchParams& params, unsigned blocks, ops::Stream& stream);

}  // namespace fathom::cuda
