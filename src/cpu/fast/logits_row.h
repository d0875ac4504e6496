#pragma once
// What sampling asks of a row of logits: its range, its normaliser, and its best tokens. A few vectorised
// passes, no sort.
//
//   const Range range = range_of(logits, vocab_size, stream.kernels());
//   const float log_total = log_sum_exp(logits, vocab_size, range.max, stream.kernels());
//
// Pure functions, thread-safe.

#include <cmath>
#include <cstdint>

#include "cpu/isa/kernels.h"
#include "cpu/top_tokens.h"

namespace fathom::cpu::fast {

struct Range {
  float min = HUGE_VALF, max = -HUGE_VALF;
  int64_t first_max = 0;  // where max is for the first time
  bool good = true;       // no NaN, no +inf
};
Range range_of(const float* values, int64_t num, const KernelTable& kernels);

// max: the largest of them, finite. Blocks are summed in float32 and added in double, because a vocabulary has many of
// them.
float log_sum_exp(const float* logits, int64_t num, float max, const KernelTable& kernels);

// Adds all of them.
void add_all(TopTokens& top, const float* logits, int64_t num, const KernelTable& kernels);

}  // namespace fathom::cpu::fast
