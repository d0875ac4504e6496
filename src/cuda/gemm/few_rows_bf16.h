#pragma once
// Products of bf16 experts that have few rows each: gate and up with SiLU, then down, in one kernel.
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
  const tensor::Bf16* x = nullptr;  // [tokens, hidden_size]
  int64_t x_stride = 0, hidden_size = 0, inter = 0, experts = 0;
  const tensor::Bf16* gate_up = nullptr;  // [experts, 2, inter, hidden_size]
  const tensor::Bf16* down = nullptr;     // [experts, hidden_size, inter]
  // Behind those: experts side by side, [2, shared * inter, hidden_size] and [hidden_size, shared * inter].
  int64_t shared = 0;
  const tensor::Bf16* shared_gate_up = nullptr;
  const tensor::Bf16* shared_down = nullptr;
  GroupTiles tiles{};                 // of kFewTileRows rows at most
  int64_t most_tiles = 0;             // what the host knows
  const int* token_of_row = nullptr;  // i32[rows]
  int* counters = nullptr;    // [most_tiles + 1], 0: columns of h that are there, the next task
  tensor::Bf16* h = nullptr;  // scratch, [rows, inter]
  tensor::Bf16* y = nullptr;  // [rows, hidden_size]
};

// Tokens of a call whose experts have few rows each, at most: of 256 the tiles of product.h are faster.
inline constexpr int64_t kFewRowsBf16Tokens = 128;

bool takes_few_rows_bf16(Stored weight, int64_t inter, int64_t hidden_size);
void few_rows_bf16(const FewRowsBf16Args& args, ops::Stream& stream);

}  // namespace fathom::cuda
