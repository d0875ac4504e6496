#pragma once
// MemoryPlan: what the device's memory goes to. Weights are measured, one largest step is measured, and
// the cache gets a part of what is left, never a guess that ends out of memory later.
//
//   MemoryPlan plan = plan_kv_pool(measured, {.mem_fraction_static = 0.5});   // StartupError: does not fit
//   FATHOM_LOG(kInfo, "runner", plan.describe());
//
// Pure functions.

#include <cstdint>
#include <optional>
#include <string>

#include "runner/step_executor.h"

namespace fathom::runner {

struct MeasuredMemory {
  int64_t weight_bytes = 0;
  StepMemory step{};
  int64_t free_bytes = 0;  // with weights and step buffers in place
  int64_t block_bytes = 0;
  int block_tokens = 64;
  // Ranks that have these free bytes in common, each with weights and step buffers in place, and take equal parts.
  int num_sharers = 1;

  int64_t free_for_rank() const { return free_bytes / num_sharers; }
};

struct PoolRequest {
  // Part of the free bytes that the cache may take, (0, 1].
  double mem_fraction_static = 0.9;
  // Or this many tokens, whatever part that is.
  std::optional<int64_t> max_total_tokens{};
  int64_t context_tokens = 0;     // the pool holds at least one sequence of these ...
  bool context_required = false;  // ... or, when nobody asked for them, is cut to what fits
  int max_slots = 0;              // and at most this many, more could never be used
};

struct MemoryPlan {
  MeasuredMemory measured{};
  int64_t pool_bytes = 0;
  int num_blocks = 0;
  int64_t pool_tokens = 0;         // rows of the cache
  int64_t max_context_tokens = 0;  // of one sequence
  std::string reason{};            // what set the size of the pool

  // All numbers, in one line of key=value for people.
  std::string describe() const;
  // The same with a smaller pool, where ranks that hold the same rows agree on what all of them can have.
  // REQUIRES: 1 <= blocks <= num_blocks.
  MemoryPlan with_blocks(int blocks) const;
};

// Throws StartupError that names what is needed, what is there, and what to change.
MemoryPlan plan_kv_pool(const MeasuredMemory& measured, const PoolRequest& request);

// "12.3 MiB"
std::string format_bytes(int64_t bytes);

}  // namespace fathom::runner
