#include "ops/add_rows.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::expect;

void add_rows(const AddRowsArgs& args, Stream& stream) {
  const tensor::DType act = stream.backend().act;
  Dim rows("rows"), dim("dim");
  expect("x", args.x, act, {&rows, &dim});
  expect("sum", args.sum, act, {&rows, &dim});
  dispatch("add_rows", act, stream.backend().add_rows, args, stream);
}

}  // namespace fathom::ops
