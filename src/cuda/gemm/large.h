#pragma once
// Products of many rows, on the tensor cores of whole blocks: what a prefill wants.
//
//   if (tokens > kMaxBatchTokens && large_linear(args, stream)) return;      // else the kernels of few rows
//
// Each returns whether it takes these shapes, strides and types; if so it has enqueued the work. The bits of a row
// differ from those of the streaming kernels. The scratch is 0 where it takes nothing.

#include <cstdint>

#include "ops/linear.h"
#include "ops/moe.h"

namespace fathom::cuda {

// By cuBLASLt or our kernels, whichever is chosen (choice.h); library_linear() by cuBLASLt or not at all.
bool large_linear(const ops::LinearArgs& args, ops::Stream& stream);
bool library_linear(const ops::LinearArgs& args, ops::Stream& stream);
int64_t large_linear_scratch(const ops::LinearArgs& args);
// Both in one product, where that takes no longer than two.
bool large_linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream);
int64_t large_linear_pair_scratch(const ops::LinearPairArgs& args);
// Whether calls of kFewestLargeTokens belong here already: few rows of an expert have a kernel of their own.
inline constexpr int64_t kFewestLargeTokens = 9;
bool large_takes_few(const ops::MoeExpertsArgs& args);
bool large_moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream);
int64_t large_moe_experts_scratch(const ops::MoeExpertsArgs& args);
// With the shared experts as some more, which have as many rows as there are tokens: of FP8 one expert, of few rows.
// Whether these shapes have kernels for that, up to so many tokens:
inline constexpr int64_t kMostSharedTokens = 1024;
bool large_takes_shared(const ops::MoeExpertsSharedArgs& args);
bool large_moe_experts_shared(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream);
int64_t large_moe_experts_shared_scratch(const ops::MoeExpertsSharedArgs& args);

}  // namespace fathom::cuda
