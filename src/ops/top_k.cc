#include "ops/top_k.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect;

void top_k(const TopKArgs& args, Stream& stream) {
  Dim rows("rows"), vocab_size("vocab_size"), k("k");
  expect("logits", args.logits, DType::kF32, {&rows, &vocab_size});
  expect("ids", args.ids, DType::kI32, {&rows, &k});
  expect("logprobs", args.logprobs, DType::kF32, {&rows, &k});
  expect_contiguous("ids", args.ids);
  expect_contiguous("logprobs", args.logprobs);
  dispatch("top_k", stream.backend().act, stream.backend().top_k, args, stream);
}

}  // namespace fathom::ops
