#pragma once
// Whether a model would run in a memory of a given size, and what cache is left: counted from its layout, before any of
// it is taken. What a step needs is an estimate.
//
//   const MemoryFit fit = fit_in({.place = "GPU 0", .bytes = int64_t{80} << 30, .cache_share = 0.9}, needs);
//   fit.runs();  fit_text(fit, 163840);      // "in GPU 0 (85.9 GB) about 1,482,000 tokens of cache: ..."
//
// Pure functions.

#include <cstdint>
#include <string>

#include "apps/engine/engine_setup.h"
#include "base/json_fwd.h"

namespace fathom::apps {

// What a step of 8,192 tokens, captured steps and libraries take of a GPU: an estimate, within a gigabyte of what
// published shapes need.
inline constexpr int64_t kGpuStepBytes = 4'000'000'000;

// Of a GPU's memory, for the cache.
inline constexpr double kGpuCacheShare = 0.9;

// What is to hold the model: one rank's device, or a rank's share of the machine.
struct MemoryPlace {
  std::string name;  // "each of 8 GPUs"
  int64_t bytes = 0;
  double cache_share = 0;  // of what weights and the step leave, for the cache
};

// Of one rank.
struct MemoryNeeds {
  int64_t weight_bytes = 0, step_bytes = 0, kv_bytes_per_token = 0;
};

struct MemoryFit {
  MemoryPlace place;
  MemoryNeeds needs;
  int64_t cache_tokens = 0;

  // A cache of some tokens is left.
  bool runs() const { return cache_tokens > 0; }
};

MemoryFit fit_in(const MemoryPlace& place, const MemoryNeeds& needs);

// On a CPU: rows of 2,048 prompt tokens in their widest forms.
int64_t cpu_step_bytes(const config::ModelConfig& config);
// Where this command would run: the GPU that `backend` is, or this machine's share for each of so many ranks.
MemoryPlace this_machine(const EngineFlags& flags, const ops::Backend& backend);

// For people. Requests have 4,096 tokens in it, and as many as the model's context has.
std::string fit_text(const MemoryFit& fit, int64_t context_tokens);
// Of one that does not run: what is short.
std::string fit_problem(const MemoryFit& fit);
json::Value fit_json(const MemoryFit& fit);

}  // namespace fathom::apps
