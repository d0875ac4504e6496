#pragma once
// One tile of a matrix product: the rules of ops/linear.h for a few rows, shared by linear,
// head_linear and moe_experts. Callers walk the tokens in tiles of kTileTokens, which bounds
// scratch; every output is computed alone, so tiling does not change its bits.
//
//   matmul({.x = x, .x_stride = in, .rows = n, .weight = w, .in = in, .out = out, .y = y, ...;
//
// Pure functions, thread-safe.

#include <cstdint>

#include "ops/activation.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace fathom::cpu::reference {

inline constexpr int64_t kTileTokens = 64;

struct MatmulArgs {
  const float* x = nullptr;  // f32[rows, in]; with quantised weights the quantised values
  int64_t x_stride = 0;
  const float* x_scale =
      nullptr;  // f32[rows, ceil(in / 128)], quantised weights only; of channels the first counts
  int64_t rows = 0;
  const void* weight = nullptr;  // [out, in] of dtype, contiguous; of i4x2 and u4x2 [out, in / 2]
  tensor::DType dtype = tensor::DType::kF32;
  ops::ScaleForm form = ops::ScaleForm::kNone;
  // f32[ceil(out / 128), ceil(in / 128)], or of channels f32[out], or of groups f32[out, ceil(in / 128)], or with zero
  // points f16[out, 2 * in / zero_channels]
  const void* scale = nullptr;
  int64_t zero_channels = 0;
  int64_t in = 0, out = 0;
  float* weight_row = nullptr;  // scratch, f32[in]
  float* y = nullptr;           // f32[rows, out]
  int64_t y_stride = 0;
  bool accumulate = false;
};
void matmul(const MatmulArgs& args);

// The rule of ops/quantize_fp8.h for one row.
void quantize_row(const float* x, int64_t dim, tensor::F8E4M3* q, float* scale);
// The same with q as float32 values, ready for matmul().
void quantize_row_to_floats(const float* x, int64_t dim, float* q, float* scale);
// The same for i8 weights (ops/linear.h): integers as float32 values, a scale for so many channels each.
void quantize_i8_row_to_floats(const float* x, int64_t dim, int64_t channels, float* q,
                               float* scale);
// As a weight reads the row, f8 or i8.
void quantize_row_for(const ops::Weight& weight, const float* x, int64_t dim, float* q,
                      float* scale);
// Row of x with q as float32 values, whether x came quantised or is quantised now.
void quantised_floats(const ops::Weight& weight, const ops::Activation& x, int64_t row, float* q,
                      float* scale);

}  // namespace fathom::cpu::reference
