#pragma once
// Limits: how large a grammar may be, and what it may cost.
//
//   compile(expression, {.max_states = 1000});
//
// Plain data.

#include <cstdint>

#include "core/grammar_limits.h"

namespace fathom::grammar {

struct Limits {
  int64_t max_source_bytes = core::kMaxGrammarBytes;
  int max_depth = 32;  // groups in patterns and rules, schemas in schemas
  int max_states = 100'000;
  int max_properties = 5'000;  // of all objects of a schema together
  int64_t max_memory_bytes = int64_t{64} << 20;
  double max_cpu_seconds = 1.0;                      // of the compiling thread
  int64_t max_mask_cache_bytes = int64_t{16} << 20;  // per grammar and vocabulary
};

}  // namespace fathom::grammar
