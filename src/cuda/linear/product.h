#pragma once
// The streaming product kernels: few rows of activations with one or two matrices, or with a matrix per head.
//
//   ProductParams params{...};                       // rows and parts; the launcher divides the work
//   run_product(Stored::kBf16, params, stream);
//
// Internal to cuda/.

#include <cstdint>

#include "cuda/gemm/stored.h"
#include "ops/stream.h"
#include "tuned/choice.h"

namespace fathom::cuda {

// One matrix, or one per head.
struct ProductPart {
  const char* weight = nullptr;  // W[rows, in]; per head weight_head_bytes apart
  // f32[ceil(rows / 128), ceil(in / 128)] of f8 and i8, [rows, ceil(in / 128)] of i4, [rows] of i8 with scales of
  // channels; w_scale_head apart
  const float* w_scale = nullptr;
  const uint16_t* zero_points = nullptr;  // of u4: f16[rows, 2 * in / group_channels]
  char* out = nullptr;  // bf16|f32[tokens, rows], strided; per head out_head elements apart
  int64_t weight_head_bytes = 0, w_scale_head = 0, out_stride = 0, out_head = 0;
  int rows = 0;
  int group_channels = 0;  // of u4
  bool out_is_float = false;
  tuned::MatrixChoice choice{};  // of its kernel alone
  // Set by the launcher: blocks and warps of a block that share a tile of rows, units of (tiles of rows, tile of
  // tokens), groups of blocks.
  int group = 1, warps = 1, units = 0, stride = 1;
};

struct ProductParams {
  const char* x = nullptr;  // bf16[tokens, in] or what the weight takes: e4m3 (f8, i4), i8
  // f32[tokens, heads, ceil(in / 128)] of these, [tokens] of i8 with scales of channels
  const float* x_scale = nullptr;
  int64_t x_stride_bytes = 0, x_head_bytes = 0;
  ProductPart a, b;  // b.rows 0: there is none
  int tokens = 0, in = 0, heads = 1;
  bool accumulate = false;
  // Set by the launcher.
  int blocks_a = 0, token_tiles = 1, lines = 0, stages = 2, cluster = 1;
  int blocks = 0;  // of 128 channels
};

// REQUIRES: tokens, heads and a.rows are not 0.
void run_product(Stored weight, const ProductParams& params, ops::Stream& stream);

// One per type of weight, each in a file of its own.
void run_product_f32(const ProductParams& params, ops::Stream& stream);
void run_product_bf16(const ProductParams& params, ops::Stream& stream);
void run_product_f8(const ProductParams& params, ops::Stream& stream);
void run_product_i4(const ProductParams& params, ops::Stream& stream);
void run_product_i8_blocks(const ProductParams& params, ops::Stream& stream);
void run_product_i8_channels(const ProductParams& params, ops::Stream& stream);

}  // namespace fathom::cuda
