#pragma once
// How the results of a step differ that two ranks have computed from the same batch, in a sentence.
//
//   difference(of_rank_2, of_rank_3, {.first = 2, .other = 3})    // "rank 3 sampled token 7, rank 2 token 5"
//
// Pure function. Log-probabilities may differ.

#include <string>

#include "core/batch.h"

namespace fathom::core {

struct TwoRanks {
  int first = 0, other = 0;
};

// Empty = they do not.
std::string difference(const StepResult& first, const StepResult& other, const TwoRanks& ranks);

}  // namespace fathom::core
