#pragma once
// linear of u4x2 weights, which have zero points: any number of rows on one kernel, for few of them. gemm/large.h has
// many.
//
//   if (has_zero_points(args.weight)) return zero_point_linear(args, stream);
//
// Internal to cuda/.

#include "ops/linear.h"

namespace fathom::cuda {

inline bool has_zero_points(const ops::Weight& weight) {
  return weight.data.dtype() == tensor::DType::kU4x2;
}
void zero_point_linear(const ops::LinearArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
