#pragma once
// The calls of experts that have kernels of their own, which no file chooses: of few tokens, a class of rows.
//
//   if (has_few_expert_tokens(shape, tokens)) ...;      // the rule, whatever else was measured
//
// A pure function.

#include "tuned/choice.h"

namespace fathom::tuned {

inline constexpr int64_t kMaxFewExpertTokens = 8, kFewExpertChannels = 256;

inline bool has_few_expert_tokens(const ExpertShape& shape, int64_t tokens) {
  return shape.dtype == tensor::DType::kF8E4M3 && shape.inter == kFewExpertChannels &&
         tokens <= kMaxFewExpertTokens;
}

}  // namespace fathom::tuned
