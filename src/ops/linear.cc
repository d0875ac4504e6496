#include "ops/linear.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::Tensor, tensor::expect, tensor::expect_one_of;

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

// Scales and as many zero points, of groups of equal sizes.
int64_t zero_point_columns(std::string_view name, const Tensor& scale, int64_t in) {
  const int64_t columns = scale.dim(scale.rank() - 1), groups = columns / 2;
  FATHOM_CHECK(
      columns % 2 == 0 && groups > 0 && in % groups == 0 && is_zero_point_group(in / groups),
      name << " is " << scale.describe() << ", must have a scale and a zero point for each 32, 64 "
           << "or 128 of " << in);
  return columns;
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
  if (dtype == DType::kU4x2) return ScaleForm::kZeroPoints;
  if (dtype != DType::kI8) return ScaleForm::kNone;
  const int rank = weight.scale.rank();
  const bool of_channels = rank >= 2 && weight.scale.dim(rank - 1) == 1 &&
                           weight.scale.dim(rank - 2) == weight.data.dim(weight.data.rank() - 2);
  return of_channels ? ScaleForm::kChannels : ScaleForm::kBlocks;
}

const void* matrix_scale(const Weight& weight, int64_t index) {
  const Tensor& scale = weight.scale;
  if (scale.is_null()) return nullptr;
  // The leading axes may be strided: heads of a part of W_UV begin as far apart as those of the whole.
  int64_t entries = 0;
  for (int axis = scale.rank() - 3; axis >= 0; --axis) {
    entries += index % scale.dim(axis) * scale.stride(axis);
    index /= scale.dim(axis);
  }
  return static_cast<const char*>(scale.data()) + entries * tensor::dtype_bytes(scale.dtype());
}

int64_t row_values(const tensor::Tensor& matrix) {
  const int64_t stored = matrix.dim(matrix.rank() - 1);
  return tensor::holds_pairs(matrix.dtype()) ? 2 * stored : stored;
}

int64_t zero_point_channels(const Weight& weight) {
  if (scale_form(weight) != ScaleForm::kZeroPoints) return 0;
  return row_values(weight.data) / (weight.scale.dim(weight.scale.rank() - 1) / 2);
}

Dim stored_in(DType dtype, const Dim& in) {
  if (!tensor::holds_pairs(dtype)) return in;
  FATHOM_CHECK(in.value() % 2 == 0, "in is " << in.value() << ", must be even with "
                                             << tensor::dtype_name(dtype) << " weights");
  return Dim("in / 2", in.value() / 2);
}

void expect_weight_scale(std::string_view name, const Weight& weight, int64_t in, int64_t out) {
  const ScaleForm form = scale_form(weight);
  if (form == ScaleForm::kNone) {
    FATHOM_CHECK(weight.scale.is_null(),
                 name << " is " << weight.scale.describe()
                      << ", must be null without f8, i8, i4x2 or u4x2 weights");
    return;
  }
  const int rank = weight.scale.rank(), expected_rank = weight.data.rank();
  FATHOM_CHECK(rank == expected_rank,
               name << " is " << weight.scale.describe() << ", rank must be " << expected_rank);
  const bool has_zeros = form == ScaleForm::kZeroPoints;
  const DType dtype = has_zeros ? DType::kF16 : DType::kF32;
  FATHOM_CHECK(weight.scale.dtype() == dtype, name << " is " << weight.scale.describe()
                                                   << ", must be " << tensor::dtype_name(dtype));
  FATHOM_CHECK(weight.data.dtype() != DType::kI8 || in <= kMaxI8In,
               "in is " << in << ", must be at most " << kMaxI8In << " with i8 weights");
  for (int axis = 0; axis < rank; ++axis) {
    int64_t expected = weight.data.dim(axis);
    if (axis == rank - 2 && form == ScaleForm::kBlocks) expected = num_scale_blocks(out);
    if (axis == rank - 1)
      expected = has_zeros                      ? zero_point_columns(name, weight.scale, in)
                 : form == ScaleForm::kChannels ? 1
                                                : num_scale_blocks(in);
    FATHOM_CHECK(weight.scale.dim(axis) == expected, name << " axis " << axis << ": must be "
                                                          << expected << ", got "
                                                          << weight.scale.dim(axis));
  }
  expect_contiguous(name, weight.scale);
}

}  // namespace fathom::ops
