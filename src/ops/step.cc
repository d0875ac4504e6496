#include "ops/step.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

void step_inputs(const StepInputsArgs& args, Stream& stream) {
  Dim slots("slots"), max_blocks("max_blocks"), slices("slices"), tokens("tokens");
  expect("last_token", args.last_token, DType::kI32, {&slots});
  expect("length", args.length, DType::kI32, {&slots});
  expect("block_tables", args.block_tables, DType::kI32, {&slots, &max_blocks});
  expect("slice_slot", args.slice_slot, DType::kI32, {&slices});
  Dim starts("slices + 1", slices.value() + 1);
  expect("query_start", args.query_start, DType::kI32, {&starts});
  expect("given_token", args.given_token, DType::kI32, {&tokens});
  expect("relative", args.relative, DType::kI32, {&tokens});
  expect("token_ids", args.token_ids, DType::kI32, {&tokens});
  expect("positions", args.positions, DType::kI32, {&tokens});
  expect("kv_rows", args.kv_rows, DType::kI64, {&tokens});
  expect("kv_len", args.kv_len, DType::kI32, {&slices});
  expect("tables", args.tables, DType::kI32, {&slices, &max_blocks});
  FATHOM_CHECK(args.block_tokens > 0, "block_tokens is " << args.block_tokens);
  expect_contiguous("block_tables", args.block_tables);
  expect_contiguous("tables", args.tables);
  dispatch("step_inputs", stream.backend().act, stream.backend().step_inputs, args, stream);
}

void commit_tokens(const CommitTokensArgs& args, Stream& stream) {
  Dim slots("slots"), slices("slices"), rows("rows");
  Dim penalty_rows("penalty_rows"), vocab_size("vocab_size");
  expect("last_token", args.last_token, DType::kI32, {&slots});
  expect("length", args.length, DType::kI32, {&slots});
  expect("slice_slot", args.slice_slot, DType::kI32, {&slices});
  Dim starts("slices + 1", slices.value() + 1);
  expect("query_start", args.query_start, DType::kI32, {&starts});
  expect("sampled", args.sampled, DType::kI32, {&rows});
  expect("commit_row", args.commit_row, DType::kI32, {&slices});
  expect("penalty_row", args.penalty_row, DType::kI32, {&slices});
  expect_or_null("counts", args.counts, DType::kI32, {&penalty_rows, &vocab_size});
  expect_contiguous("counts", args.counts);
  dispatch("commit_tokens", stream.backend().act, stream.backend().commit_tokens, args, stream);
}

void write_words(const WriteWordsArgs& args, Stream& stream) {
  Dim words("words");
  expect("address", args.address, DType::kU64, {&words});
  expect("value", args.value, DType::kI32, {&words});
  dispatch("write_words", stream.backend().act, stream.backend().write_words, args, stream);
}

void count_tokens(const CountTokensArgs& args, Stream& stream) {
  Dim vocab_size("vocab_size"), tokens("tokens");
  expect("counts", args.counts, DType::kI32, {&vocab_size});
  expect("tokens", args.tokens, DType::kI32, {&tokens});
  FATHOM_CHECK(args.num_prompt >= 0 && args.num_prompt <= tokens.value(),
               "num_prompt is " << args.num_prompt << " of " << tokens.value());
  dispatch("count_tokens", stream.backend().act, stream.backend().count_tokens, args, stream);
}

}  // namespace fathom::ops
