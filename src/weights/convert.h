#pragma once
// Element conversions of the loader, written as plain loops over contiguous arrays that compilers
// vectorise. Results equal tensor::to_float / from_float bit for bit, except that NaN payloads may differ.
//
//   convert(src, DType::kF16, dst, DType::kBf16, count);
//   dequantize(f8, scales, dst, DType::kF32, columns);       // one scale per 128 columns
//   quantize_blocks(matrix, rows, columns, BlockScale::kAny, {q, block_scales});
//
// Thread-safe (no state).

#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/scale_block.h"

namespace fathom::weights {

using tensor::kScaleBlock, tensor::num_scale_blocks;

// f32, bf16 or f16 to f32 or bf16.
bool can_convert(tensor::DType from, tensor::DType to);

// The same bytes: one dtype, or i8 as checkpoints name pairs of 4 bits and i4x2.
bool same_bytes(tensor::DType from, tensor::DType to);
// The same bytes are copied. REQUIRES: same_bytes(from, to) or can_convert(from, to).
void convert(const void* src, tensor::DType from, void* dst, tensor::DType to, int64_t count);

// dst[i] = src[i] * scales[i / 128], rounded once to the destination's dtype.
// REQUIRES: to is f32 or bf16.
void dequantize(const tensor::F8E4M3* src, const float* scales, void* dst, tensor::DType to,
                int64_t count);
void dequantize(const int8_t* src, const float* scales, void* dst, tensor::DType to, int64_t count);
// The same with one scale for all.
void dequantize_channel(const int8_t* src, float scale, void* dst, tensor::DType to, int64_t count);

// `count` values of a row from value `first` on, which is even, as `count` is. packed: where value `first` lies;
// scales: of the row, one for 128 values.
struct PackedRow {
  const tensor::I4x2* packed = nullptr;
  const float* scales = nullptr;
  int64_t first = 0, count = 0;
};
void dequantize(const PackedRow& row, void* dst, tensor::DType to);

// kPowerOfTwo: rounded up to one, as checkpoints of "scale_fmt": "ue8m0" have them.
enum class BlockScale { kAny, kPowerOfTwo };

// FP8 of a matrix, one scale per block of 128x128, which may be partial at the end of a side:
//   scale = max(amax of the block, 1e-10) / 448,  q = e4m3(src / scale)
// in float32, both divisions correctly rounded. NaN does not count for amax and stays NaN in q.
//
// Of e4m3 values that were multiplied with a scale and rounded to bf16 it gives back the values bit for bit, if each
// block has one of 448; the scale comes back with the error of a bf16 (2^-9), a power of two exactly. With kPowerOfTwo
// value times scale comes back exactly whatever the block's largest value.
//
// src    f32[rows, columns]
struct QuantizedBlocks {
  tensor::F8E4M3* q;  // [rows, columns]
  float* scale;       // [ceil(rows / 128), ceil(columns / 128)]
};
void quantize_blocks(const float* src, int64_t rows, int64_t columns, BlockScale kind,
                     const QuantizedBlocks& to);

}  // namespace fathom::weights
