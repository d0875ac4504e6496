#pragma once
// Speculation: whether and how far the step loop drafts, checked against what the runner's drafter can.
//
//   StepLoop loop(runner, {.speculation = {.enabled = true}});           // all that the drafter offers
//   int num_drafts = num_drafts_of(config.speculation, runner.info());   // 0 = off

#include <array>

#include "core/request.h"
#include "runner/runner.h"

namespace fathom::engine {

struct SpeculationConfig {
  bool enabled = false;
  // As runner::DrafterInfo; 0 = the drafter's. A chain may be shorter than the drafter's. A tree has its steps and
  // its top_k, since the device cuts its best num_draft_tokens out of the same tree.
  int num_steps = 0, top_k = 0, num_draft_tokens = 0;
  // Choose in every step how many drafts pay (draft_depth.h); otherwise always as many as there may be.
  bool adaptive = false;
};

// Drafts of one slot at a time, at most kMaxDraftsOfSlot. Throws StartupError when the runner has no such drafter, or
// one that proposes more.
int num_drafts_of(const SpeculationConfig& config, const runner::RunnerInfo& info);

// A runner's drafter may propose so many for a slot.
inline constexpr int kMaxDraftsOfSlot = 63;

// core::SpeculationCounts of a request that runs, in one piece: nothing of it lies elsewhere.
struct RunningSpeculation {
  int64_t num_verify_steps = 0, num_drafts_proposed = 0, num_drafts_verified = 0;
  std::array<int32_t, kMaxDraftsOfSlot + 1> accept_histogram{};

  // Adds what a verified slice did: num_shown of its tokens reach the client, the others lie behind its end.
  // Returns how many accepted drafts are among these.
  int add_verified(int num_verified_drafts, int num_accepted_drafts, int num_shown);
  core::SpeculationCounts counts() const;
};

}  // namespace fathom::engine
