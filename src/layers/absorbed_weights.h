#pragma once
// W_UK and W_UV, the parts of kv_b_proj that absorbed attention multiplies with (DeepSeek-V2 report, section 2.1.2),
// made from it when it is loaded.
//
//   derive_w_uk(kv_b, w_uk, stream);                                        // in kv_b's own type
//   derive_absorbed_fp8(kv_b, {.w_uk = w_uk, .w_uv = w_uv}, kind, stream);  // in FP8
//
// kv_b  [heads, qk_nope_head_dim + v_head_dim, kv_lora_rank]
// w_uk  [heads, kv_lora_rank, qk_nope_head_dim]   transposed
// w_uv  [heads, v_head_dim, kv_lora_rank]
//
// They wait for the stream and compute on the calling thread.

#include "ops/linear.h"
#include "ops/stream.h"
#include "weights/convert.h"

namespace fathom::layers {

// kv_b and w_uk: both f32 or both bf16.
void derive_w_uk(const tensor::Tensor& kv_b, const tensor::Tensor& w_uk, ops::Stream& stream);

// kv_b bf16; both parts f8_e4m3 with their scales, contiguous. Every head is quantised by weights::quantize_blocks(),
// so blocks of a head never reach into the next. Where the sizes of a head are multiples of 128, blocks are those of an
// FP8 checkpoint, whose values come back as it says there.
struct AbsorbedWeights {
  ops::Weight w_uk, w_uv;
};
void derive_absorbed_fp8(const tensor::Tensor& kv_b, const AbsorbedWeights& to,
                         weights::BlockScale kind, ops::Stream& stream);

}  // namespace fathom::layers
