#include "runner/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/check.h"
#include "base/startup_error.h"

namespace fathom::runner {
namespace {

int64_t blocks_for(int64_t tokens, int block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

[[noreturn]] void throw_does_not_fit(const MeasuredMemory& measured, const std::string& what,
                                     int64_t blocks, const std::string& advice) {
  throw StartupError(
      what + " needs " + format_bytes(blocks * measured.block_bytes) + " (" +
      std::to_string(blocks) + " blocks of " + std::to_string(measured.block_tokens) +
      " tokens), but " + format_bytes(measured.free_for_rank()) + " are free " +
      (measured.num_sharers == 1
           ? ""
           : "for each of " + std::to_string(measured.num_sharers) + " ranks that share them, ") +
      "after weights (" + format_bytes(measured.weight_bytes) + ") and the largest step (" +
      format_bytes(measured.step.total_bytes()) + "): " + advice);
}

int64_t blocks_by_tokens(const MeasuredMemory& measured, int64_t max_total_tokens) {
  if (max_total_tokens < 1)
    throw StartupError("max_total_tokens is " + std::to_string(max_total_tokens) +
                       ", must be >= 1");
  const int64_t blocks = blocks_for(max_total_tokens, measured.block_tokens);
  if (blocks > measured.free_for_rank() / measured.block_bytes)
    throw_does_not_fit(measured,
                       "a cache of max_total_tokens = " + std::to_string(max_total_tokens), blocks,
                       "lower --max-total-tokens or the largest step (--chunked-prefill-size, "
                       "--max-running-requests)");
  return blocks;
}

int64_t blocks_by_fraction(const MeasuredMemory& measured, double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    throw StartupError("mem_fraction_static is " + std::to_string(fraction) +
                       ", must be in (0, 1]");
  return static_cast<int64_t>(static_cast<double>(measured.free_for_rank()) * fraction) /
         measured.block_bytes;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

MemoryPlan plan_kv_pool(const MeasuredMemory& measured, const PoolRequest& request) {
  const int64_t context_blocks = blocks_for(request.context_tokens, measured.block_tokens);
  const int64_t most_useful = context_blocks * request.max_slots;
  MemoryPlan plan{.measured = measured};
  int64_t blocks = 0;
  if (request.max_total_tokens.has_value()) {
    blocks = blocks_by_tokens(measured, *request.max_total_tokens);
    plan.reason = "max_total_tokens";
  } else {
    blocks = blocks_by_fraction(measured, request.mem_fraction_static);
    plan.reason = "mem_fraction_static";
    if (blocks > most_useful) {
      blocks = most_useful;
      plan.reason = "max_running_requests * context";
    }
  }
  blocks = std::min<int64_t>(blocks, std::numeric_limits<int32_t>::max());
  if (blocks < 1 || (request.context_required && blocks < context_blocks))
    throw_does_not_fit(measured,
                       "one sequence of " +
                           std::to_string(request.context_required ? request.context_tokens : 1) +
                           " tokens",
                       request.context_required ? context_blocks : 1,
                       "the cache may take " + format_bytes(blocks * measured.block_bytes) +
                           " of them; raise --mem-fraction-static or --max-total-tokens, or lower "
                           "--context-length or the largest step (--chunked-prefill-size)");
  plan.num_blocks = static_cast<int>(blocks);
  plan.pool_bytes = blocks * measured.block_bytes;
  plan.pool_tokens = blocks * measured.block_tokens;
  plan.max_context_tokens = std::min(request.context_tokens, plan.pool_tokens);
  return plan;
}

MemoryPlan MemoryPlan::with_blocks(int blocks) const {
  FATHOM_CHECK(blocks >= 1 && blocks <= num_blocks, blocks << " blocks of " << num_blocks);
  MemoryPlan plan = *this;
  if (blocks == num_blocks) return plan;
  plan.reason = "the rank with the least room";
  plan.num_blocks = blocks;
  plan.pool_bytes = blocks * measured.block_bytes;
  plan.pool_tokens = int64_t{blocks} * measured.block_tokens;
  plan.max_context_tokens = std::min(max_context_tokens, plan.pool_tokens);
  return plan;
}

std::string MemoryPlan::describe() const {
  const StepMemory& step = measured.step;
  return "weights=" + format_bytes(measured.weight_bytes) +
         " largest_step=" + format_bytes(step.total_bytes()) +
         " (activations=" + format_bytes(step.workspace_bytes) +
         " logits=" + format_bytes(step.logits_bytes) + " slots=" + format_bytes(step.slots_bytes) +
         " sampler=" + format_bytes(step.sampler_bytes) +
         (step.drafter_bytes > 0 ? " drafter=" + format_bytes(step.drafter_bytes) : "") +
         " scratch=" + format_bytes(step.scratch_bytes) +
         ") free=" + format_bytes(measured.free_bytes) +
         (measured.num_sharers == 1 ? "" : " shared_by=" + std::to_string(measured.num_sharers)) +
         " cache=" + format_bytes(pool_bytes) + " (" + std::to_string(pool_tokens) + " tokens of " +
         std::to_string(measured.block_bytes / measured.block_tokens) + " bytes in " +
         std::to_string(num_blocks) + " blocks of " + format_bytes(measured.block_bytes) +
         ", set by " + reason + ") max_context_tokens=" + std::to_string(max_context_tokens);
}

}  // namespace fathom::runner
