#include "ops/linear.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

namespace {

// Of one product; the rows of x fix `tokens` and `in`.
void expect_product(const Weight& weight, const tensor::Tensor& out_rows, DType act, Dim& tokens,
                    Dim& in) {
  Dim out("out"), stored = stored_in(weight.data.dtype(), in);
  expect_one_of("weight", weight.data, kMatrixTypes, {&out, &stored});
  expect_one_of("out", out_rows, {act, DType::kF32}, {&tokens, &out});
  expect_contiguous("weight", weight.data);
  expect_weight_scale("scale", weight, in.value(), out.value());
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
  FATHOM_CHECK(scale_form(args.a.weight) == scale_form(args.b.weight),
               "scales are " << args.a.weight.scale.describe() << " and "
                             << args.b.weight.scale.describe() << ", must have one form");
  dispatch("linear_pair", dtype, stream.backend().linear_pair, args, stream);
}

ScaleForm scale_form(const Weight& weight) {
  const DType dtype = weight.data.dtype();
  if (dtype == DType::kF8E4M3) return ScaleForm::kBlocks;
  if (dtype == DType::kI4x2) return ScaleForm::kGroups;
  if (dtype != DType::kI8) return ScaleForm::kNone;
  const int rank = weight.scale.rank();
  const bool of_channels = rank >= 2 && weight.scale.dim(rank - 1) == 1 &&
                           weight.scale.dim(rank - 2) == weight.data.dim(weight.data.rank() - 2);
  return of_channels ? ScaleForm::kChannels : ScaleForm::kBlocks;
}

int64_t row_values(const tensor::Tensor& matrix) {
  const int64_t stored = matrix.dim(matrix.rank() - 1);
  return matrix.dtype() == DType::kI4x2 ? 2 * stored : stored;
}

Dim stored_in(DType dtype, const Dim& in) {
  if (dtype != DType::kI4x2) return in;
  FATHOM_CHECK(in.value() % 2 == 0, "in is " << in.value() << ", must be even with i4x2 weights");
  return Dim("in / 2", in.value() / 2);
}

void expect_weight_scale(std::string_view name, const Weight& weight, int64_t in, int64_t out) {
  const ScaleForm form = scale_form(weight);
  if (form == ScaleForm::kNone) {
    FATHOM_CHECK(weight.scale.is_null(), name << " is " << weight.scale.describe()
                                              << ", must be null without f8, i8 or i4x2 weights");
    return;
  }
  const int rank = weight.scale.rank(), expected_rank = weight.data.rank();
  FATHOM_CHECK(rank == expected_rank,
               name << " is " << weight.scale.describe() << ", rank must be " << expected_rank);
  FATHOM_CHECK(weight.scale.dtype() == DType::kF32,
               name << " is " << weight.scale.describe() << ", must be f32");
  FATHOM_CHECK(weight.data.dtype() != DType::kI8 || in <= kMaxI8In,
               "in is " << in << ", must be at most " << kMaxI8In << " with i8 weights");
  for (int axis = 0; axis < rank; ++axis) {
    int64_t expected = weight.data.dim(axis);
    if (axis == rank - 2 && form == ScaleForm::kBlocks) expected = num_scale_blocks(out);
    if (axis == rank - 1) expected = form == ScaleForm::kChannels ? 1 : num_scale_blocks(in);
    FATHOM_CHECK(weight.scale.dim(axis) == expected, name << " axis " << axis << ": must be "
                                                          << expected << ", got "
                                                          << weight.scale.dim(axis));
  }
  expect_contiguous(name, weight.scale);
}

}  // namespace fathom::ops
