// The parts of ops/moe.h's fused operator, one after the other, for tiles of tokens.
#include <algorithm>

#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "ops/moe.h"
#include "ops/silu_mul.h"
#include "tensor/arena.h"

namespace fathom::cpu::reference {
namespace {

using tensor::DType, tensor::Tensor;

struct SharedRows {
  Tensor gate_up;  // f32[tile, 2, inter]
  Tensor gated;    // f32[tile, inter]
};

// The products of tokens [begin, end), without memory of the rows in between.
struct SharedProducts {
  ops::LinearArgs gate, up, down;
};

SharedProducts products(const ops::MoeExpertsSharedArgs& args, const SharedRows& rows,
                        int64_t begin, int64_t end) {
  const ops::Activation x = args.experts.x.rows(begin, end);
  const auto half = [&](int64_t i) {
    const ops::Weight& w = args.shared_gate_up;
    return ops::LinearArgs{
        .x = x,
        .weight = {w.data[i], w.scale.is_null() ? Tensor() : w.scale[i]},
        .out = rows.gate_up.slice(0, 0, end - begin)
                   .reshape({end - begin, 2 * rows.gated.dim(1)})
                   .slice(1, i * rows.gated.dim(1), (i + 1) * rows.gated.dim(1))};
  };
  return {.gate = half(0),
          .up = half(1),
          .down = {.x = rows.gated.slice(0, 0, end - begin),
                   .weight = args.shared_down,
                   .out = args.experts.out.slice(0, begin, end)}};
}

int64_t tile_of(const ops::MoeExpertsSharedArgs& args) {
  return std::min(kTileTokens, args.experts.x.dim(0));
}

SharedRows carve(const ops::MoeExpertsSharedArgs& args, tensor::Arena& arena) {
  const int64_t tile = tile_of(args), inter = ops::row_values(args.shared_down.data);
  return {.gate_up = arena.allocate(DType::kF32, {tile, 2, inter}),
          .gated = arena.allocate(DType::kF32, {tile, inter})};
}

// The parts take the beginning of the scratch in turn.
int64_t parts_bytes(const ops::MoeExpertsSharedArgs& args, const ops::Stream& stream) {
  tensor::Arena nowhere;
  const SharedProducts shared = products(args, carve(args, nowhere), 0, tile_of(args));
  const int64_t bytes =
      std::max({linear_scratch(shared.gate, stream), linear_scratch(shared.up, stream),
                linear_scratch(shared.down, stream), moe_experts_scratch(args.experts, stream)});
  constexpr int64_t kAlignment = tensor::Arena::kAlignmentBytes;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t rows_bytes(const ops::MoeExpertsSharedArgs& args) {
  tensor::Arena measure;
  carve(args, measure);
  return measure.peak_bytes();
}

}  // namespace

int64_t moe_experts_shared_scratch(const ops::MoeExpertsSharedArgs& args,
                                   const ops::Stream& stream) {
  return parts_bytes(args, stream) + rows_bytes(args);
}

void moe_experts_shared(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream) {
  if (args.experts.x.dim(0) == 0) return;
  tensor::Arena arena(static_cast<char*>(stream.scratch()) + parts_bytes(args, stream),
                      rows_bytes(args));
  const SharedRows rows = carve(args, arena);
  const int64_t tokens = args.experts.x.dim(0);
  for (int64_t begin = 0; begin < tokens; begin += kTileTokens) {
    const int64_t end = std::min(begin + kTileTokens, tokens);
    const SharedProducts shared = products(args, rows, begin, end);
    reference::linear(shared.gate, stream);
    reference::linear(shared.up, stream);
    reference::silu_mul(
        {.gate_up = rows.gate_up.slice(0, 0, end - begin), .out = shared.down.x.values}, stream);
    reference::linear(shared.down, stream);
  }
  ops::MoeExpertsArgs routed = args.experts;
  routed.accumulate = true;
  reference::moe_experts(routed, stream);
}

}  // namespace fathom::cpu::reference
