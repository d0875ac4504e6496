#pragma once
// Gate and up with SiLU where experts have few rows each.
//
//   if (takes_few_rows(Stored::kF8, inter, hidden_size)) few_rows_gate_up({...}, stream);   // then quantise h
//
// Has the sums of tiled_product(). Internal to gemm/; only enqueues.

#include <cstdint>

#include "cuda/gemm/groups.cuh"
#include "cuda/gemm/stored.h"
#include "ops/stream.h"

namespace fathom::cuda {

struct FewRowsArgs {
  const void* x = nullptr;         // e4m3[tokens, hidden_size]
  const float* x_scale = nullptr;  // f32[tokens, hidden_size / 128]
  int64_t tokens = 0, hidden_size = 0, x_stride = 0;
  const void* gate_up = nullptr;         // e4m3[experts, 2, inter, hidden_size]
  const float* gate_up_scale = nullptr;  // f32[experts, 2, inter / 128, hidden_size / 128]
  int64_t experts = 0, inter = 0;
  GroupTiles tiles{};                 // of kFewTileRows rows at most
  const int* token_of_row = nullptr;  // i32[rows]
  float* h = nullptr;                 // f32[rows, inter]
};

// Tokens of a call whose experts have few rows each, at most.
inline constexpr int64_t kFewRowsTokens = 128;

// As V3's experts in ranks of eight have them; others were not measured.
bool takes_few_rows(Stored weight, int64_t inter, int64_t hidden_size);
void few_rows_gate_up(const FewRowsArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
