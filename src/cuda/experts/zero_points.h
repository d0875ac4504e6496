#pragma once
// moe_experts of u4x2 weights, which have zero points: any number of tokens on one kernel for gate and up and one for
// down, for few of them. gemm/large.h has many.
//
//   if (has_zero_points(args.down)) return zero_point_experts(args, stream);
//
// Internal to cuda/.

#include "ops/moe.h"

namespace fathom::cuda {

int64_t zero_point_experts_scratch(const ops::MoeExpertsArgs& args);
void zero_point_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
