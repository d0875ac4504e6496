#include "ops/embedding.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

void embedding(const EmbeddingArgs& args, Stream& stream) {
  Dim tokens("tokens"), vocab_size("vocab_size"), hidden_size("hidden_size");
  expect("ids", args.ids, DType::kI32, {&tokens});
  expect_one_of("table", args.table, {DType::kF32, DType::kBf16}, {&vocab_size, &hidden_size});
  expect("out", args.out, stream.backend().act, {&tokens, &hidden_size});
  expect_contiguous("table", args.table);
  dispatch("embedding", args.table.dtype(), stream.backend().embedding, args, stream);
}

}  // namespace fathom::ops
