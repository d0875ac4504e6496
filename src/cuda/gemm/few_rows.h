#pragma once
// FP8 experts of 256 channels that have few rows each: gate and up with SiLU, then down, in one kernel.
//
//   if (takes_few_rows(Stored::kF8, inter, hidden_size)) few_rows_experts({...}, stream);
//
// Has the sums of tiled_product(), so rows have the bits of calls of more tokens. Internal to gemm/; only enqueues.

#include <cstdint>

#include "cuda/gemm/groups.cuh"
#include "cuda/gemm/stored.h"
#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

struct FewRowsArgs {
  const void* x = nullptr;         // e4m3[tokens, hidden_size]
  const float* x_scale = nullptr;  // f32[tokens, hidden_size / 128]
  int64_t x_stride = 0, hidden_size = 0, inter = 0, experts = 0;
  const void* gate_up = nullptr;         // e4m3[experts, 2, inter, hidden_size]
  const float* gate_up_scale = nullptr;  // f32[experts, 2, inter / 128, hidden_size / 128]
  const void* down = nullptr;            // e4m3[experts, hidden_size, inter]
  const float* down_scale = nullptr;     // f32[experts, hidden_size / 128, inter / 128]
  // One more expert behind those; null: there is none.
  const void* shared_gate_up = nullptr;
  const float* shared_gate_up_scale = nullptr;
  const void* shared_down = nullptr;
  const float* shared_down_scale = nullptr;
  GroupTiles tiles{};                 // of kFewTileRows rows at most
  int64_t most_tiles = 0;             // what the host knows
  const int* token_of_row = nullptr;  // i32[rows]
  int* counters = nullptr;            // [most_tiles + 1], 0
  // Scratch: f32[few_rows_carried()], e4m3[rows, inter], f32[rows, inter / 128].
  float* carried = nullptr;
  uint8_t* h = nullptr;
  float* h_scale = nullptr;
  tensor::Bf16* y = nullptr;  // [rows, hidden_size]
};

// Tokens of a call whose experts have few rows each, at most: of 640 tokens of V3 a prefill gains 4% more, of 1024 it
// loses 1%.
inline constexpr int64_t kFewRowsTokens = 512;

// As V3's experts in ranks of eight have them; others were not measured.
bool takes_few_rows(Stored weight, int64_t inter, int64_t hidden_size);
int64_t few_rows_carried();
void few_rows_experts(const FewRowsArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
