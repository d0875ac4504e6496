#pragma once
// The two halves of moe_gate: logits, then the choice of experts. Internal to gate/.
//
//   gate_logits(args, tokens, partials, stream);         // partials[token][split][expert]
//   choose_experts(args, tokens, {partials, kGateSplits}, stream);
//
// A logit is the sum of kGateSplits parts of the width in rising order, each summed by the tensor cores in steps
// of 16 channels. So its bits depend on the width alone, whichever kernel computes it. Only where the backend need not
// be batch-invariant, many tokens are a large product (gemm/large.h), with bits of its own.

#include <cstdint>

#include "ops/moe.h"

namespace fathom::cuda {

inline constexpr int kGateSplits = 16;
// The width goes to the tensor cores in pieces of this many channels: 8 to each of 4 lanes.
inline constexpr int kGateStep = 32;

// Tokens [begin, end) of a call.
struct GateTokens {
  int64_t begin = 0, end = 0;
};

struct GateSums {
  float* parts;  // f32[tokens, splits, n_routed_experts]
  int splits;
};

// Parts of the logits, for any shape; the weight is read once per 32 tokens.
void gate_logits(const ops::MoeGateArgs& args, GateTokens tokens, float* parts,
                 ops::Stream& stream);

// The same for some hundred tokens, where the shapes and types suit it.
bool takes_some_tokens(const ops::MoeGateArgs& args, GateTokens tokens);
void gate_logits_of_some(const ops::MoeGateArgs& args, GateTokens tokens, float* parts,
                         ops::Stream& stream);

// Whole logits (one split) of many tokens, where the shapes and types suit it.
bool takes_many_tokens(const ops::MoeGateArgs& args);
void gate_logits_of_many(const ops::MoeGateArgs& args, float* logits, ops::Stream& stream);

void choose_experts(const ops::MoeGateArgs& args, GateTokens tokens, const GateSums& sums,
                    ops::Stream& stream);

}  // namespace fathom::cuda
