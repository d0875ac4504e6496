#pragma once
// Products of bf16 experts that have few rows each: gate and up with SiLU, or down.
//
//   if (takes_few_rows_bf16(weight, inter, hidden_size)) few_rows_bf16({...}, stream);
//
// Has the sums of tiled_product(), so rows have the bits of calls of more tokens. Internal to gemm/; only enqueues.

#include <cstdint>

#include "cuda/gemm/groups.cuh"
#include "cuda/gemm/stored.h"
#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

struct FewRowsBf16Args {
  const tensor::Bf16* x = nullptr;  // [x_rows, k]
  int64_t x_rows = 0, x_stride = 0, k = 0;
  const tensor::Bf16* weight = nullptr;  // [experts, n, k], of gate and up [experts, 2, n, k]
  int64_t experts = 0, n = 0;
  // Behind those: experts that are parts of one matrix, of gate and up [2, shared * n, k], of down [n, shared * k].
  const tensor::Bf16* shared_weight = nullptr;
  int64_t shared = 0;
  GroupTiles tiles{};  // of kFewTileRows rows at most
  // Gate and up: row i of the product is row token_of_row[i] of x. Null: down, and row i.
  const int* token_of_row = nullptr;
  tensor::Bf16* out = nullptr;  // [rows, n]
};

// Tokens of a call whose experts have few rows each, at most: of 256 the tiles of product.h are faster.
inline constexpr int64_t kFewRowsBf16Tokens = 128;

bool takes_few_rows_bf16(Stored weight, int64_t inter, int64_t hidden_size);
// REQUIRES: down comes right behind gate and up, which come behind what made the tiles.
void few_rows_bf16(const FewRowsBf16Args& args, ops::Stream& stream);

}  // namespace fathom::cuda
