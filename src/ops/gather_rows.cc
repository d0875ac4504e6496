#include "ops/gather_rows.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect;

void gather_rows(const GatherRowsArgs& args, Stream& stream) {
  Dim tokens("tokens"), outputs("outputs"), dim("dim");
  expect("x", args.x, stream.backend().act, {&tokens, &dim});
  expect("rows", args.rows, DType::kI32, {&outputs});
  expect("out", args.out, stream.backend().act, {&outputs, &dim});
  expect_contiguous("out", args.out);
  dispatch("gather_rows", stream.backend().act, stream.backend().gather_rows, args, stream);
}

}  // namespace fathom::ops
