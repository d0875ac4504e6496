#pragma once
// IndexFormat: how one token's key of the lightning indexer (ops/index.h) is stored, and IndexCache: the keys of one
// layer. They lie beside MLA's rows (ops/kv_format.h) in planes of their own: the same block and offset give a token's
// latent row and its key, so one block table leads to both.
//
//   const IndexFormat format = IndexFormat::of(DType::kF8E4M3, /*dim=*/128);
//   format.row_bytes();                                                        // 132
//
//   keys      values       scale  bytes of a row of 128 values
//   f32       f32[dim]     none   512
//   f8_e4m3   e4m3[dim]    f32    128 + 4
//
// f8_e4m3, the published form (DeepSeek-V3.2-Exp, inference/kernel.py, ue8m0):
//   amax = max(|x|, 1e-4);  scale = the smallest power of two with amax / scale <= 448;  q = e4m3(x / scale), to
//   nearest even. NaN does not count for amax and stays NaN in q; an infinity makes the scale infinite (as kv_scale
//   has it).
//
// Plain data.

#include <cstdint>

#include "tensor/tensor.h"

namespace fathom::ops {

struct IndexFormat {
  tensor::DType values = tensor::DType::kF32;
  int64_t dim = 0;

  // values: f32 or f8_e4m3 (checked).
  static IndexFormat of(tensor::DType values, int64_t dim);
  bool has_scale() const { return values == tensor::DType::kF8E4M3; }
  int64_t row_bytes() const;
  bool operator==(const IndexFormat&) const = default;
};

// The scale of a row of this largest magnitude (NaN excepted).
float index_scale(float amax);

struct IndexCache {
  tensor::Tensor values;  // f32|f8_e4m3[blocks, block_tokens, dim]
  tensor::Tensor scales;  // f32[blocks, block_tokens]; null where values are f32

  bool is_null() const { return values.is_null(); }
  int64_t num_blocks() const { return values.dim(0); }
  int64_t block_tokens() const { return values.dim(1); }
  int64_t dim() const { return values.dim(2); }
};

}  // namespace fathom::ops
