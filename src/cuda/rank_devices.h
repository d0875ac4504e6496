#pragma once
// Whether GPUs can be the ranks of one model: decided from what they are, so that it is tested without any.
//
//   const std::string why_not = why_not_ranks(list_gpus(), /*count=*/2);
//
// Pure function.

#include <string>
#include <vector>

#include "cuda/inventory.h"

namespace fathom::cuda {

// The first `count` of them. One sentence with the rule; empty = they can.
std::string why_not_ranks(const std::vector<Gpu>& gpus, int count);

}  // namespace fathom::cuda
