#include "ops/linear.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

namespace {

// Of one product; the rows of x fix `tokens` and `in`.
void expect_product(const Weight& weight, const tensor::Tensor& out_rows, DType act, Dim& tokens,
                    Dim& in) {
  Dim out("out");
  expect_one_of("weight", weight.data, {DType::kF32, DType::kBf16, DType::kF8E4M3}, {&out, &in});
  expect_one_of("out", out_rows, {act, DType::kF32}, {&tokens, &out});
  expect_contiguous("weight", weight.data);
  expect_block_scale("scale", weight, in.value(), out.value());
}

}  // namespace

void linear(const LinearArgs& args, Stream& stream) {
  const DType act = stream.backend().act, dtype = args.weight.data.dtype();
  Dim tokens("tokens"), in("in");
  expect_activation("x", args.x, act, dtype, {&tokens, &in});
  expect_product(args.weight, args.out, act, tokens, in);
  dispatch("linear", dtype, stream.backend().linear, args, stream);
}

void linear_pair(const LinearPairArgs& args, Stream& stream) {
  const DType act = stream.backend().act, dtype = args.a.weight.data.dtype();
  Dim tokens("tokens"), in("in");
  expect_activation("x", args.x, act, dtype, {&tokens, &in});
  expect_product(args.a.weight, args.a.out, act, tokens, in);
  expect_product(args.b.weight, args.b.out, act, tokens, in);
  FATHOM_CHECK(args.b.weight.data.dtype() == dtype,
               "weights are " << args.a.weight.data.describe() << " and "
                              << args.b.weight.data.describe() << ", must have one type");
  dispatch("linear_pair", dtype, stream.backend().linear_pair, args, stream);
}

void expect_block_scale(std::string_view name, const Weight& weight, int64_t in, int64_t out) {
  if (weight.data.dtype() != DType::kF8E4M3) {
    FATHOM_CHECK(weight.scale.is_null(),
                 name << " is " << weight.scale.describe() << ", must be null without f8 weights");
    return;
  }
  const int rank = weight.scale.rank(), expected_rank = weight.data.rank();
  FATHOM_CHECK(rank == expected_rank,
               name << " is " << weight.scale.describe() << ", rank must be " << expected_rank);
  FATHOM_CHECK(weight.scale.dtype() == DType::kF32,
               name << " is " << weight.scale.describe() << ", must be f32");
  for (int axis = 0; axis < rank; ++axis) {
    int64_t expected = weight.data.dim(axis);
    if (axis == rank - 2) expected = num_scale_blocks(out);
    if (axis == rank - 1) expected = num_scale_blocks(in);
    FATHOM_CHECK(weight.scale.dim(axis) == expected, name << " axis " << axis << ": must be "
                                                          << expected << ", got "
                                                          << weight.scale.dim(axis));
  }
  expect_contiguous(name, weight.scale);
}

}  // namespace fathom::ops
