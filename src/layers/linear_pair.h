#pragma once
// Two products of the same rows: in one call where the backend has it for weights of one type, else one after the
// other.
//
//   linear_pair(fused, {.x = x, .a = {q_a_proj, q_a}, .b = {kv_a_proj, kv_a}}, stream);

#include "layers/fused_ops.h"
#include "ops/linear.h"

namespace fathom::layers {

inline void linear_pair(const FusedOps& fused, const ops::LinearPairArgs& args,
                        ops::Stream& stream) {
  const bool one_type = args.a.weight.data.dtype() == args.b.weight.data.dtype();
  if (fused.linear_pair && one_type) return ops::linear_pair(args, stream);
  ops::linear({.x = args.x, .weight = args.a.weight, .out = args.a.out}, stream);
  ops::linear({.x = args.x, .weight = args.b.weight, .out = args.b.out}, stream);
}

}  // namespace fathom::layers
