#include "ops/quantize_fp8.h"

#include "ops/boundary.h"
#include "tensor/scale_block.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect;

void quantize_fp8(const QuantizeFp8Args& args, Stream& stream) {
  Dim tokens("tokens"), dim("dim"), scale_blocks("ceil(dim / 128)");
  expect("x", args.x, stream.backend().act, {&tokens, &dim});
  expect("q", args.q, DType::kF8E4M3, {&tokens, &dim});
  expect("scale", args.scale, DType::kF32, {&tokens, &scale_blocks});
  const int64_t expected = tensor::num_scale_blocks(dim.value());
  FATHOM_CHECK(scale_blocks.value() == expected,
               "scale axis 1: ceil(dim / 128) is " << expected << ", got " << scale_blocks.value());
  expect_contiguous("q", args.q);
  expect_contiguous("scale", args.scale);
  dispatch("quantize_fp8", stream.backend().act, stream.backend().quantize_fp8, args, stream);
}

}  // namespace fathom::ops
