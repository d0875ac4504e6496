#pragma once
// Linear layer without bias: out = x * weight^T (+ out when accumulate).
//
// x       act[tokens, in], or quantised rows of an f8 or i4x2 weight (ops/activation.h)   rows may be strided
// weight  f32|bf16|f8_e4m3|i8[out, in], or i4x2|u4x2[out, in/2], of which in is even
// scale   f32[ceil(out/128), ceil(in/128)]   with f8 and i8 weights: w = q * scale of its 128x128 block
//         f32[out, 1]                        or with i8 weights: w = q * scale of its output channel
//         f32[out, ceil(in/128)]             with i4x2 weights: w = q * scale of its 128 channels of one output
//         f16[out, 2 * in/g]                 with u4x2 weights: of each output its scales of g channels, then as many
//                                            zero points, w = (q - zero) * scale, exact in float32; g is 32, 64 or 128
// out     act|f32[tokens, out]      rows may be strided; f32 always allowed (logits)
//
// f32, bf16 and u4x2 weights: products and sums in float32.
// f8 weights: x is quantised per token and 128 channels (ops/quantize_fp8.h), the products of one
// 128-wide block of `in` are summed first, then sum * (x_scale * w_scale) is added in float32, blocks in
// rising order (DeepSeek-V3 report, section 3.3).
// i4x2 weights: as f8 ones, the integers being e4m3 values, with a w_scale for each output.
// i8 weights, scales of channels: x is quantised per token, scale = max(amax, 1e-10) / 127, q = x / scale rounded to
// the nearest integer, half to even (true float32 divisions); the products are summed as integers, exactly, and
// float(sum) * (x_scale * w_scale) is the product. Scales of blocks: x is quantised per token and 128 channels by the
// same rule, and float(sum of one block) * (x_scale * w_scale) is added in float32, blocks in rising order, product
// and addition each rounded. So all backends have the same bits. NaN or infinity in x makes its scale NaN. in is at
// most 2^17, so that no sum leaves 32 bits.
// accumulate: the finished product is added to out once, so it rounds like a product and an addition.
//
// linear_pair, fused: two products of the same rows in one call, to the bit
//   linear(x, a.weight, a.out);  linear(x, b.weight, b.out);
// The weights have one type, and their scales one form. Gate and up whose scale blocks do not join, q_a and kv_a.

#include "ops/activation.h"
#include "ops/backend.h"
#include "tensor/scale_block.h"
#include "tensor/tensor.h"

namespace fathom::ops {

using tensor::kScaleBlock, tensor::num_scale_blocks;

// A weight matrix as stored: values and, for f8, i8, i4x2 and u4x2, scales.
struct Weight {
  tensor::Tensor data, scale;
};

// What shares one scale. A shape of i8 scales that is both has one output and one block: the two are the same then.
// kZeroPoints: a group of channels of one output, with a zero point beside the scale.
enum class ScaleForm : uint8_t { kNone, kBlocks, kChannels, kGroups, kZeroPoints };
ScaleForm scale_form(const Weight& weight);
// Whether products with a weight of this form quantise the rows of x.
constexpr bool quantises_rows(ScaleForm form) {
  return form != ScaleForm::kNone && form != ScaleForm::kZeroPoints;
}
inline bool quantises_rows(const Weight& weight) { return quantises_rows(scale_form(weight)); }
// Channels of a group of kZeroPoints, 0 of other forms, and whether there are kernels for so many.
int64_t zero_point_channels(const Weight& weight);
constexpr bool is_zero_point_group(int64_t channels) {
  return channels == 32 || channels == 64 || channels == 128;
}
// Scales of matrix `index` of a stack, whose leading axes count as one. Null where there are none.
const void* matrix_scale(const Weight& weight, int64_t index = 0);
// Values in a row of a matrix [..., out, in] as stored, in.
int64_t row_values(const tensor::Tensor& matrix);
// Of a row of x as a weight of this form reads it: how many channels share a scale.
constexpr int64_t row_scale_channels(ScaleForm form, int64_t in) {
  return form == ScaleForm::kChannels ? in : kScaleBlock;
}
inline constexpr int64_t kMaxI8In = int64_t{1} << 17;

struct LinearArgs {
  Activation x;
  Weight weight;
  bool accumulate = false;
  tensor::Tensor out;
};
void linear(const LinearArgs& args, Stream& stream);

struct LinearPairArgs {
  struct Product {
    Weight weight;
    tensor::Tensor out;
  };
  Activation x;
  Product a, b;
};
void linear_pair(const LinearPairArgs& args, Stream& stream);

// For the boundary checks of operators with weights: elements of a row of `in` values as stored. `in` has its value.
tensor::Dim stored_in(tensor::DType dtype, const tensor::Dim& in);
// The scale fits the weight [..., out, in], or is null when the weight is not quantised.
void expect_weight_scale(std::string_view name, const Weight& weight, int64_t in, int64_t out);

}  // namespace fathom::ops
