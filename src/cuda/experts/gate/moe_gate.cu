#include "cuda/experts/gate/gate.h"

#include <algorithm>

#include "cuda/experts/gate/ops.h"
#include "cuda/gemm/large.h"
#include "cuda/runtime/device_arena.h"

namespace fathom::cuda {
namespace {

constexpr int64_t kGroupTokens = 1024;  // whose parts the scratch holds at once

struct Scratch {
  float* parts;
};

Scratch carve(const ops::MoeGateArgs& args, DeviceArena& arena) {
  const int64_t tokens = args.x.dim(0), experts = args.weight.dim(0);
  const int64_t parts = std::min(tokens, kGroupTokens) * kGateSplits;
  return {.parts = arena.take<float>(std::max(tokens, parts) * experts)};
}

// V3's gate in parts takes as long there, V2-Lite's with 2048 tokens.
constexpr int64_t kMinProductTokens = 1409;

// Many tokens as one large product, whose bits differ from those of the parts.
bool gate_logits_by_product(const ops::MoeGateArgs& args, float* logits, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0), experts = args.weight.dim(0);
  if (tokens < kMinProductTokens || stream.backend().batch_invariant ||
      args.weight.dtype() != tensor::DType::kBf16)
    return false;
  return large_linear(
      {.x = args.x,
       .weight = {.data = args.weight, .scale = {}},
       .out = tensor::Tensor::contiguous(logits, tensor::DType::kF32, {tokens, experts})},
      stream);
}

}  // namespace

int64_t moe_gate_scratch(const ops::MoeGateArgs& args, const ops::Stream&) {
  DeviceArena arena;
  carve(args, arena);
  return arena.bytes();
}

void moe_gate(const ops::MoeGateArgs& args, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(args, arena);
  const bool by_product = gate_logits_by_product(args, scratch.parts, stream);
  if (by_product || takes_many_tokens(args)) {
    if (!by_product) gate_logits_of_many(args, scratch.parts, stream);
    return choose_experts(args, {.begin = 0, .end = tokens}, {.parts = scratch.parts, .splits = 1},
                          stream);
  }
  for (int64_t begin = 0; begin < tokens; begin += kGroupTokens) {
    const GateTokens group{.begin = begin, .end = std::min(begin + kGroupTokens, tokens)};
    const bool are_some = takes_some_tokens(args, group);
    (are_some ? gate_logits_of_some : gate_logits)(args, group, scratch.parts, stream);
    choose_experts(args, group, {.parts = scratch.parts, .splits = kGateSplits}, stream);
  }
}

}  // namespace fathom::cuda
