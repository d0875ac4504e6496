#pragma once
// Element conversions of the loader, written as plain loops over contiguous arrays that compilers
// vectorise. Results equal tensor::to_float / from_float bit for bit, except that NaN payloads may differ.
//
//   convert(src, DType::kF16, dst, DType::kBf16, count);
//   dequantize(f8, scales, dst, DType::kF32, columns);       // one scale per 128 columns
//
// Thread-safe (no state).

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/scale_block.h"

namespace fathom::weights {

using tensor::kScaleBlock, tensor::num_scale_blocks;

// f32, bf16 or f16 to f32 or bf16.
bool can_convert(tensor::DType from, tensor::DType to);

// Same dtype: copies. REQUIRES: from == to or can_convert(from, to).
void convert(const void* src, tensor::DType from, void* dst, tensor::DType to, int64_t count);

// dst[i] = src[i] * scales[i / 128], rounded once to the destination's dtype.
// REQUIRES: to is f32 or bf16.
void dequantize(const tensor::F8E4M3* src, const float* scales, void* dst, tensor::DType to,
                int64_t count);

}  // namespace fathom::weights
