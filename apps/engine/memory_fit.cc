#include "apps/engine/memory_fit.h"

#include <algorithm>

#include "apps/engine/progress.h"
#include "base/memory.h"
#include "cuda/inventory.h"

namespace fathom::apps {
namespace {

constexpr int64_t kTypicalRequestTokens = 4096;
constexpr int64_t kStepTokens = 2048;
// Float32 rows of hidden_size that a layer holds side by side, generously.
constexpr int64_t kRowsPerToken = 32;

// 1482000 -> "1,482,000"
std::string grouped(int64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string requests(int64_t count, int64_t tokens) {
  return grouped(count) + (count == 1 ? " request of " : " requests of ") + grouped(tokens);
}

}  // namespace

MemoryFit fit_in(const MemoryPlace& place, const MemoryNeeds& needs) {
  const int64_t left = std::max<int64_t>(place.bytes - needs.weight_bytes - needs.step_bytes, 0);
  const double cache_bytes = place.cache_share * static_cast<double>(left);
  return {.place = place,
          .needs = needs,
          .cache_tokens =
              static_cast<int64_t>(cache_bytes) / std::max<int64_t>(needs.kv_bytes_per_token, 1)};
}

int64_t cpu_step_bytes(const config::ModelConfig& config) {
  return kStepTokens * kRowsPerToken * config.hidden_size * int64_t{sizeof(float)};
}

MemoryPlace this_machine(const EngineFlags& flags, const ops::Backend& backend) {
  const double share =
      flags.memory.mem_fraction_static.value_or(backend.defaults.mem_fraction_static);
  if (!backend.device_memory) {
    const int ranks = flags.ranks.tp_size;
    const std::string name =
        ranks > 1 ? "each of " + std::to_string(ranks) + " ranks' share of this machine"
                  : "this machine";
    return {.name = name, .bytes = memory::limit_bytes() / ranks, .cache_share = share};
  }
  const std::vector<cuda::Gpu> gpus = cuda::list_gpus();
  if (gpus.empty())
    return {.name = "GPU 0", .bytes = backend.free_memory_bytes(), .cache_share = share};
  return {.name = "GPU 0, " + gpus.front().name,
          .bytes = gpus.front().total_bytes,
          .cache_share = share};
}

std::string fit_text(const MemoryFit& fit, int64_t context_tokens) {
  const std::string where = fit.place.name + " (" + format_bytes(fit.place.bytes) + ")";
  if (!fit.runs()) return "no room in " + where;
  std::string text = "in " + where + " about " + grouped(fit.cache_tokens) + " tokens of cache: ";
  const int64_t typical = fit.cache_tokens / kTypicalRequestTokens;
  if (context_tokens <= kTypicalRequestTokens || typical == 0)
    return text + requests(fit.cache_tokens / std::max<int64_t>(context_tokens, 1), context_tokens);
  text += requests(typical, kTypicalRequestTokens);
  const int64_t whole = fit.cache_tokens / context_tokens;
  if (whole > 0) return text + ", or " + requests(whole, context_tokens);
  return text + "; a request has " + grouped(fit.cache_tokens) + " at most";
}

std::string fit_problem(const MemoryFit& fit) {
  return "it would not run in " + fit.place.name + ": " + format_bytes(fit.needs.weight_bytes) +
         " of weights and about " + format_bytes(fit.needs.step_bytes) +
         " of a step leave no cache in " + format_bytes(fit.place.bytes);
}

json::Value fit_json(const MemoryFit& fit) {
  return {{"place", fit.place.name},
          {"memory_bytes", fit.place.bytes},
          {"weight_bytes", fit.needs.weight_bytes},
          {"step_bytes_estimated", fit.needs.step_bytes},
          {"cache_tokens", fit.cache_tokens},
          {"runs", fit.runs()}};
}

}  // namespace fathom::apps
