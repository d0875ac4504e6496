#include "ops/sample.h"

#include "base/token_mask.h"
#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

namespace {

// One value per row.
void expect_parameters(const SampleArgs& args, Dim& rows) {
  expect("temperature", args.temperature, DType::kF32, {&rows});
  expect("top_k", args.top_k, DType::kI32, {&rows});
  expect("top_p", args.top_p, DType::kF32, {&rows});
  expect("min_p", args.min_p, DType::kF32, {&rows});
  expect("repetition", args.repetition, DType::kF32, {&rows});
  expect("frequency", args.frequency, DType::kF32, {&rows});
  expect("presence", args.presence, DType::kF32, {&rows});
  expect("seed", args.seed, DType::kU64, {&rows});
  expect("position", args.position, DType::kI32, {&rows});
  expect("penalty_row", args.penalty_row, DType::kI32, {&rows});
  expect("num_top", args.num_top, DType::kI32, {&rows});
  expect("forced", args.forced, DType::kI32, {&rows});
}

}  // namespace

void sample(const SampleArgs& args, Stream& stream) {
  Dim rows("rows"), vocab_size("vocab_size"), penalty_rows("penalty_rows"), biases("biases");
  expect("logits", args.logits, DType::kF32, {&rows, &vocab_size});
  expect_parameters(args, rows);
  Dim starts("rows + 1", rows.value() + 1), max_top("max_top");
  Dim mask_words("ceil(vocab_size / 64)", num_mask_words(vocab_size.value()));
  Dim max_path("max_path");
  expect_or_null("counts", args.counts, DType::kI32, {&penalty_rows, &vocab_size});
  expect_or_null("paths", args.paths, DType::kI32, {&rows, &max_path});
  expect("bias_start", args.bias_start, DType::kI32, {&starts});
  expect("bias_ids", args.bias_ids, DType::kI32, {&biases});
  expect("bias_values", args.bias_values, DType::kF32, {&biases});
  expect_or_null("mask", args.mask, DType::kU64, {&rows, &mask_words});
  expect("tokens", args.tokens, DType::kI32, {&rows});
  expect("logprobs", args.logprobs, DType::kF32, {&rows});
  expect("top_ids", args.top_ids, DType::kI32, {&rows, &max_top});
  expect("top_logprobs", args.top_logprobs, DType::kF32, {&rows, &max_top});
  expect("failed", args.failed, DType::kU8, {&rows});
  expect_contiguous("counts", args.counts);
  expect_contiguous("paths", args.paths);
  expect_contiguous("mask", args.mask);
  expect_contiguous("top_ids", args.top_ids);
  expect_contiguous("top_logprobs", args.top_logprobs);
  dispatch("sample", stream.backend().act, stream.backend().sample, args, stream);
}

}  // namespace fathom::ops
