#pragma once
// What requests on the demo model go through on several ranks, in every way that the engine has, and how its outcome is
// compared with that of one rank.
//
//   for (const RankWay& way : rank_ways())
//     expect_same_outcome(run_on(*ranks_for({}, way), way), run_on(*ranks_for({.tp = 2}, way), way));

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/request.h"
#include "engine/step_loop.h"
#include "runner/ranks/rank_group.h"

namespace fathom::engine::testing {

inline constexpr model::ModelOptions kRankFloat32 = {.dequantize = true,
                                                     .weight_dtype = tensor::DType::kF32};
inline constexpr int kRankTokens = 12;

struct RankWay {
  const char* name = "";
  StepLoopConfig config{};
  bool is_constrained = false;
  bool cancels = false;
  std::optional<int64_t> max_total_tokens{};  // so few that requests are retracted
  int num_tokens = kRankTokens;               // that each request generates
  int num_growing = 3;                        // requests, where some are retracted
  size_t num_requests = 8;                    // where none is
  runner::DrafterInfo drafter{};
  std::vector<int> graph_batch_sizes{};
  std::string directory{};  // of the model; empty = the demo model's
};

struct RankOutcome {
  std::vector<core::RequestOutput> outputs;
  StepLoopStats stats;
};

std::vector<RankWay> rank_ways();

// Prompts of many lengths, two of which begin alike over a block of the cache.
std::vector<core::Request> rank_requests();

runner::RunnerConfig rank_config(const runner::DrafterInfo& drafter = {});
// Of a way: with the draft layer where there are drafts.
runner::RunnerConfig config_for(const runner::RankSizes& sizes, const RankWay& way);
model::ModelOptions options_for(const RankWay& way);

// Loads the model, the demo model where no directory is named, and starts.
void make_ready(runner::RankGroup& ranks, const model::ModelOptions& options,
                const runner::RunnerConfig& config, const std::string& directory = "");
std::unique_ptr<runner::RankGroup> make_ranks(
    const runner::RankSizes& sizes, const model::ModelOptions& options,
    const runner::RunnerConfig& config,
    std::chrono::milliseconds standstill = std::chrono::seconds(5),
    const std::string& directory = "");
// On the backend whose bits no request's company changes: the fast CPU backend, or with FATHOM_TEST_DEVICE=cuda in the
// environment GPUs.
std::unique_ptr<runner::RankGroup> make_invariant_ranks(const runner::RankSizes& sizes,
                                                        const model::ModelOptions& options);
std::unique_ptr<runner::RankGroup> ranks_for(const runner::RankSizes& sizes, const RankWay& way);

// All requests, and a last one when the others have ended. Expects that everything was returned.
RankOutcome run_on(runner::RankGroup& ranks, const RankWay& way);
// REQUIRES: one is the outcome of one rank.
void expect_same_outcome(const RankOutcome& one, const RankOutcome& other);
// Tokens and log-probabilities, to the bit.
void expect_same_bits(const RankOutcome& one, const RankOutcome& other);
// That the way did what it is there for.
void expect_way_taken(const RankOutcome& outcome, const RankWay& way);

}  // namespace fathom::engine::testing
