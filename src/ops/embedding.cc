#include "ops/embedding.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

void embedding(const EmbeddingArgs& args, Stream& stream) {
  Dim tokens("tokens"), rows("rows"), hidden_size("hidden_size");
  expect("ids", args.ids, DType::kI32, {&tokens});
  expect_one_of("table", args.table, {DType::kF32, DType::kBf16}, {&rows, &hidden_size});
  expect("out", args.out, stream.backend().act, {&tokens, &hidden_size});
  expect_contiguous("table", args.table);
  const int64_t vocab_size = args.vocab_size == 0 ? rows.value() : args.vocab_size;
  FATHOM_CHECK(args.first_id >= 0 && args.first_id + rows.value() <= vocab_size,
               "table has the ids from " << args.first_id << " on, " << rows.value() << " of "
                                         << vocab_size);
  dispatch("embedding", args.table.dtype(), stream.backend().embedding, args, stream);
}

}  // namespace fathom::ops
