#pragma once
// Scales of f8 blocks in the order that cuBLASLt wants: those of rows block by block, those of a weight with lines of a
// multiple of 4.
//
//   arrange_scales({.a = a_scale, .a_out = turned, .rows = rows, .b = b_scale, .b_out = padded, .b_rows = 32,
//                   .blocks = 18}, stream);
//
// For gemm/. Only enqueues.

#include <cstdint>

#include "ops/stream.h"

namespace fathom::cuda {

// Lines of a weight's scales are this long at least, a multiple of it.
inline constexpr int kScaleLine = 4;

struct ScaleLayoutArgs {
  const float* a = nullptr;  // f32[rows, blocks]
  float* a_out = nullptr;    // f32[blocks, rows]
  int rows = 0;
  const float* b = nullptr;  // f32[b_rows, blocks]
  // f32[b_rows, blocks up to a multiple of kScaleLine], the rest 0; null: left alone
  float* b_out = nullptr;
  int b_rows = 0;
  int blocks = 0;  // of 128 channels
};
void arrange_scales(const ScaleLayoutArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
