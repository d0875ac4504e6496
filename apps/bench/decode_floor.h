#pragma once
// The bytes that one decode step cannot avoid reading: every weight that takes part, once, and the cache
// rows of every sequence. Divided by the read bandwidth it is the least time of the step.
//
//   DecodeBytes bytes = decode_bytes(model, /*batch_size=*/1, /*context_tokens=*/1024);
//
// Pure functions.

#include <cstdint>

#include "model/model.h"

namespace fathom::apps {

struct DecodeBytes {
  int64_t weight_bytes = 0, cache_bytes = 0;
  int64_t total() const { return weight_bytes + cache_bytes; }
};

// How many of `experts` are read when `tokens` tokens each choose `chosen` different ones evenly: exactly
// `chosen` for one token, else the expected number.
double expected_experts(int experts, int chosen, int tokens);

DecodeBytes decode_bytes(const model::Model& model, int batch_size, int64_t context_tokens);

}  // namespace fathom::apps
