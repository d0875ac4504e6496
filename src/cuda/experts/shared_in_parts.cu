#include <algorithm>

#include "cuda/elementwise/ops.h"
#include "cuda/experts/experts.h"
#include "cuda/experts/ops.h"
#include "cuda/linear/ops.h"
#include "cuda/runtime/device_arena.h"
#include "ops/silu_mul.h"

namespace fathom::cuda {
namespace {

using tensor::DType, tensor::Tensor;

// The rows between the parts; the parts themselves take the beginning of the scratch in turn.
struct SharedRows {
  Tensor gate_up;  // bf16[tokens, 2, width]
  Tensor gated;    // bf16[tokens, width]
};

SharedRows carve(const ops::MoeExpertsSharedArgs& args, DeviceArena& arena) {
  const int64_t tokens = args.experts.x.dim(0), width = ops::row_values(args.shared_down.data);
  void* const gate_up = arena.take<tensor::Bf16>(tokens * 2 * width);
  void* const gated = arena.take<tensor::Bf16>(tokens * width);
  return {.gate_up = Tensor::contiguous(gate_up, DType::kBf16, {tokens, 2, width}),
          .gated = Tensor::contiguous(gated, DType::kBf16, {tokens, width})};
}

ops::LinearArgs half_of(const ops::MoeExpertsSharedArgs& args, const SharedRows& rows, int64_t i) {
  const ops::Weight& w = args.shared_gate_up;
  const int64_t tokens = rows.gated.dim(0), width = rows.gated.dim(1);
  const Tensor gate_up = rows.gate_up.reshape({tokens, 2 * width});
  return {.x = args.experts.x,
          .weight = {.data = w.data[i], .scale = w.scale.is_null() ? Tensor() : w.scale[i]},
          .out = gate_up.slice(1, i * width, (i + 1) * width)};
}

ops::LinearArgs down_of(const ops::MoeExpertsSharedArgs& args, const SharedRows& rows) {
  return {.x = rows.gated, .weight = args.shared_down, .out = args.experts.out};
}

int64_t parts_bytes(const ops::MoeExpertsSharedArgs& args, const ops::Stream& stream) {
  DeviceArena nowhere;
  const SharedRows rows = carve(args, nowhere);
  const int64_t bytes = std::max({linear_scratch(half_of(args, rows, 0), stream),
                                  linear_scratch(down_of(args, rows), stream),
                                  moe_experts_scratch(args.experts, stream)});
  return (bytes + 255) / 256 * 256;
}

}  // namespace

int64_t shared_in_parts_scratch(const ops::MoeExpertsSharedArgs& args, const ops::Stream& stream) {
  DeviceArena rows;
  carve(args, rows);
  return parts_bytes(args, stream) + rows.bytes();
}

void shared_in_parts(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream) {
  DeviceArena arena(static_cast<char*>(stream.scratch()) + parts_bytes(args, stream));
  const SharedRows rows = carve(args, arena);
  cuda::linear(half_of(args, rows, 0), stream);
  cuda::linear(half_of(args, rows, 1), stream);
  cuda::silu_mul({.gate_up = rows.gate_up, .out = rows.gated}, stream);
  cuda::linear(down_of(args, rows), stream);
  ops::MoeExpertsArgs routed = args.experts;
  routed.accumulate = true;
  cuda::moe_experts(routed, stream);
}

}  // namespace fathom::cuda
