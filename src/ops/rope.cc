#include "ops/rope.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect;

void rope_table(const RopeTableArgs& args, Stream& stream) {
  Dim tokens("tokens"), pairs("dim / 2"), dim("dim");
  expect("positions", args.positions, DType::kI32, {&tokens});
  expect("inv_freq", args.inv_freq, DType::kF32, {&pairs});
  expect("table", args.table, DType::kF32, {&tokens, &dim});
  FATHOM_CHECK(dim.value() == 2 * pairs.value(),
               "table axis 1: dim is " << 2 * pairs.value() << ", got " << dim.value());
  expect_contiguous("table", args.table);
  dispatch("rope_table", stream.backend().act, stream.backend().rope_table, args, stream);
}

void rope(const RopeArgs& args, Stream& stream) {
  Dim tokens("tokens"), heads("heads"), dim("dim");
  expect("x", args.x, stream.backend().act, {&tokens, &heads, &dim});
  expect("table", args.table, DType::kF32, {&tokens, &dim});
  FATHOM_CHECK(dim.value() % 2 == 0, "dim is " << dim.value() << ", must be even");
  expect_contiguous("table", args.table);
  dispatch("rope", stream.backend().act, stream.backend().rope, args, stream);
}

}  // namespace fathom::ops
