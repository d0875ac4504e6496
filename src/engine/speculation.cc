#include "engine/speculation.h"

#include <algorithm>
#include <string>

#include "base/startup_error.h"

namespace fathom::engine {
namespace {

// What is asked for, or the drafter's when that is 0.
int resolve(const char* name, int asked, int lowest, int drafters) {
  if (asked == 0) return drafters;
  if (asked < lowest || asked > drafters)
    throw StartupError(std::string(name) + " is " + std::to_string(asked) + ", must be in [" +
                       std::to_string(lowest) + ", " + std::to_string(drafters) +
                       "], what the drafter has");
  return asked;
}

}  // namespace

int num_drafts_of(const SpeculationConfig& config, const runner::RunnerInfo& info) {
  if (!config.enabled) return 0;
  const runner::DrafterInfo& drafter = info.drafter;
  if (drafter.max_drafts() == 0) throw StartupError("speculation is on, the runner has no drafter");
  if (drafter.max_drafts() > kMaxDraftsOfSlot)
    throw StartupError("the drafter proposes " + std::to_string(drafter.max_drafts()) +
                       " tokens, at most " + std::to_string(kMaxDraftsOfSlot) + " are possible");
  const bool is_chain = drafter.top_k == 1;
  resolve("speculative top_k", config.top_k, drafter.top_k, drafter.top_k);
  const int num_steps = resolve("speculative num_steps", config.num_steps,
                                is_chain ? 1 : drafter.num_steps, drafter.num_steps);
  const int most = is_chain ? num_steps + 1 : drafter.num_draft_tokens;
  const int num_draft_tokens =
      resolve("speculative num_draft_tokens", config.num_draft_tokens, is_chain ? most : 2, most);
  return num_draft_tokens - 1;
}

int RunningSpeculation::add_verified(int num_verified_drafts, int num_accepted_drafts,
                                     int num_shown) {
  const int num_accepted = std::min(num_accepted_drafts, num_shown);
  ++num_verify_steps;
  num_drafts_verified += num_verified_drafts;
  ++accept_histogram[static_cast<size_t>(num_accepted)];
  return num_accepted;
}

core::SpeculationCounts RunningSpeculation::counts() const {
  core::SpeculationCounts counts{.num_verify_steps = num_verify_steps,
                                 .num_drafts_proposed = num_drafts_proposed,
                                 .num_drafts_verified = num_drafts_verified};
  for (size_t n = 0; n < accept_histogram.size(); ++n) {
    if (accept_histogram[n] == 0) continue;
    counts.num_drafts_accepted += int64_t{accept_histogram[n]} * static_cast<int64_t>(n);
    counts.accept_histogram.resize(n + 1);
    counts.accept_histogram[n] = accept_histogram[n];
  }
  return counts;
}

}  // namespace fathom::engine
