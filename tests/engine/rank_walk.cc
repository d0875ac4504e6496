#include "tests/engine/rank_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cpu/fast/fast_backend.h"
#include "cuda/comm/peer_ranks.h"
#include "ops/uploader.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"
#include "tests/runner/demo_model.h"

namespace fathom::engine::testing {
namespace {

using fathom::testing::demo_path;
using fathom::testing::greedy;
using fathom::testing::load_golden;
using runner::DrafterInfo;
using runner::RankGroup;
using runner::RankSizes;

constexpr int kRetractedPrompt = 60;
constexpr int kLaneBlocks = 5;
constexpr DrafterInfo kRankChain = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4};
constexpr DrafterInfo kRankTree = {.num_steps = 3, .top_k = 2, .num_draft_tokens = 6};
// Comes when all others have ended: with several lanes one has work then, and the others have none.
constexpr core::RequestId kLastRequest = 500;

// The longest, which each grow to three blocks, where there are eight.
std::vector<core::Request> growing_requests(int count) {
  constexpr int kLongest = 3;
  const std::vector<core::Request> all = rank_requests();
  std::vector<core::Request> growing;
  for (int i = 0; i < count; ++i) {
    growing.push_back(all[all.size() - kLongest + static_cast<size_t>(i % kLongest)]);
    core::Request& request = growing.back();
    request.id = i;
    request.prompt.front() += i / kLongest;  // what begins alike would be in one lane
  }
  return growing;
}

}  // namespace

runner::RunnerConfig rank_config(const DrafterInfo& drafter) {
  return {.max_slots = 12,
          .max_batch_tokens = 256,
          .context_length = 512,
          .max_total_tokens = 4096,
          .num_threads = 1,
          .drafter = drafter};
}

void make_ready(RankGroup& ranks, const model::ModelOptions& options,
                const runner::RunnerConfig& config, const std::string& directory) {
  const std::string path = directory.empty() ? demo_path() : directory;
  ranks.create_models(value_or_throw(config::load_model_config(path)), options);
  const weights::Checkpoint checkpoint = value_or_throw(weights::Checkpoint::open(path));
  constexpr int kLoadThreads = 2;
  ops::Uploader uploader(ranks.model().backend(), kLoadThreads);
  throw_on_error(weights::load_parameters_of_ranks(
      checkpoint, ranks.parameters(),
      {.num_threads = kLoadThreads,
       .copy = [&](void* to, const void* from, int64_t bytes) { uploader.copy(to, from, bytes); },
       .ignored_prefixes = ranks.model().ignored_prefixes()}));
  uploader.finish();
  ranks.finish_loading(1);
  ranks.start(config);
}

std::unique_ptr<RankGroup> make_ranks(const RankSizes& sizes, const model::ModelOptions& options,
                                      const runner::RunnerConfig& config,
                                      std::chrono::milliseconds standstill,
                                      const std::string& directory) {
  auto ranks =
      std::make_unique<RankGroup>(sizes, cpu::fast_backend(), comm::MakeGroup(), standstill);
  make_ready(*ranks, options, config, directory);
  return ranks;
}

std::unique_ptr<RankGroup> make_invariant_ranks(const RankSizes& sizes,
                                                const model::ModelOptions& options) {
  const ops::Backend& backend = fathom::testing::invariant_backend();
  auto ranks = std::make_unique<RankGroup>(
      sizes, backend,
      backend.device_memory ? cuda::make_peer_ranks({.use_nccl = false}) : comm::MakeGroup());
  make_ready(*ranks, options, rank_config());
  return ranks;
}

std::vector<core::Request> rank_requests() {
  const auto golden = load_golden();
  std::vector<int32_t> text;
  for (const auto& prompt : golden)
    text.insert(text.end(), prompt.prompt_ids.begin(), prompt.prompt_ids.end());
  std::vector<core::Request> all;
  for (const size_t length : {5U, 20U, 63U, 64U, 70U, 90U, 150U, 210U}) {
    const size_t shared = length > 64 ? 64 : 0;
    std::vector<int32_t> prompt(text.begin(), text.begin() + static_cast<int64_t>(shared));
    for (size_t i = shared; i < length; ++i) prompt.push_back(text[(7 * length + i) % text.size()]);
    core::SamplingParams params = greedy(kRankTokens);
    params.ignore_eos = true;
    params.num_top_logprobs = 2;
    all.push_back({.id = std::ssize(all), .prompt = std::move(prompt), .sampling = params});
  }
  return all;
}

RankOutcome run_on(RankGroup& ranks, const RankWay& way) {
  StepLoopConfig config = way.config;
  config.speculation = {.enabled = way.drafter.num_steps > 0,
                        .num_steps = way.drafter.num_steps,
                        .top_k = way.drafter.top_k,
                        .num_draft_tokens = way.drafter.num_draft_tokens,
                        .adaptive = false};
  StepLoop loop(ranks.runner(), config);
  Recorder recorder(loop);
  std::vector<core::Request> all = rank_requests();
  all.resize(way.num_requests);
  if (way.max_total_tokens) all = growing_requests(way.num_growing);
  for (core::Request& request : all) {
    request.sampling.max_new_tokens = way.num_tokens;
    for (int32_t& id : request.prompt) id %= ranks.model().config().vocab_size;
    if (way.max_total_tokens)
      request.prompt.erase(request.prompt.begin(), request.prompt.end() - kRetractedPrompt);
    if (way.is_constrained && request.id % 2 == 0)
      request.constraint = std::make_shared<ToyConstraint>(
          ToyConstraint::Rule{.vocab_size = ranks.model().config().vocab_size});
    const Status added = loop.add(request);
    EXPECT_TRUE(added) << added.error().message;
  }
  for (int step = 0; recorder.step(); ++step) {
    if (way.cancels && step == 6) loop.cancel(1);
    EXPECT_EQ(loop.check_integrity(), "");
  }
  all.push_back(all.back());
  all.back().id = kLastRequest;
  all.back().constraint = nullptr;
  EXPECT_TRUE(loop.add(all.back()));
  recorder.run();
  expect_everything_returned(loop, ranks.runner().info());
  RankOutcome outcome{.outputs = {}, .stats = loop.stats()};
  for (const core::Request& request : all)
    outcome.outputs.push_back(std::move(recorder.finished.at(request.id)));
  return outcome;
}

void expect_same_outcome(const RankOutcome& one, const RankOutcome& other) {
  for (size_t i = 0; i < one.outputs.size(); ++i) {
    const core::RequestOutput &a = one.outputs[i], &b = other.outputs[i];
    ASSERT_EQ(b.error, "");
    ASSERT_EQ(a.finish_reason, b.finish_reason) << i;
    // Where it was cancelled is a matter of steps, which drafts make fewer.
    const size_t count = a.finish_reason == core::FinishReason::kCancelled
                             ? std::min(a.tokens.size(), b.tokens.size())
                             : a.tokens.size();
    ASSERT_GE(b.tokens.size(), count);
    for (size_t t = 0; t < count; ++t) {
      ASSERT_EQ(a.tokens[t].token, b.tokens[t].token) << "request " << i << " token " << t;
      ASSERT_NEAR(a.tokens[t].logprob, b.tokens[t].logprob, 1e-4) << i;
      for (size_t top = 0; top < a.tokens[t].top_logprobs.size(); ++top)
        ASSERT_NEAR(a.tokens[t].top_logprobs[top].second, b.tokens[t].top_logprobs[top].second,
                    1e-4)
            << i;
    }
  }
}

void expect_same_bits(const RankOutcome& one, const RankOutcome& other) {
  for (size_t i = 0; i < one.outputs.size(); ++i) {
    const core::RequestOutput &a = one.outputs[i], &b = other.outputs[i];
    ASSERT_EQ(a.error + b.error, "");
    ASSERT_EQ(a.tokens.size(), b.tokens.size()) << i;
    for (size_t t = 0; t < a.tokens.size(); ++t) {
      ASSERT_EQ(a.tokens[t].token, b.tokens[t].token) << "request " << i << " token " << t;
      ASSERT_EQ(a.tokens[t].logprob, b.tokens[t].logprob) << "request " << i << " token " << t;
      ASSERT_EQ(a.tokens[t].top_logprobs, b.tokens[t].top_logprobs) << i;
    }
  }
}

std::vector<RankWay> rank_ways() {
  return {
      {.name = "plain", .config = {}},
      {.name = "without radix cache, in chunks of 64",
       .config = {.chunked_prefill_size = 64, .radix_cache = false}},
      {.name = "in chunks of 192, without overlap",
       .config = {.chunked_prefill_size = 192, .overlap = false}},
      {.name = "masks", .config = {}, .is_constrained = true},
      {.name = "cancelled", .config = {.chunked_prefill_size = 64}, .cancels = true},
      {.name = "retracted",
       .config = {.chunked_prefill_size = 64},
       .max_total_tokens = 8 * 64,
       .num_tokens = 3 * 64 - kRetractedPrompt},
      {.name = "chain", .config = {}, .drafter = kRankChain},
      {.name = "chain with masks, without overlap",
       .config = {.overlap = false},
       .is_constrained = true,
       .drafter = kRankChain},
      {.name = "captured", .config = {}, .graph_batch_sizes = {1, 2, 4, 8}},
      {.name = "captured chain", .config = {}, .drafter = kRankChain, .graph_batch_sizes = {2, 4}},
      {.name = "captured tree", .config = {}, .drafter = kRankTree, .graph_batch_sizes = {1, 3, 8}},
      {.name = "tree", .config = {}, .drafter = kRankTree},
      {.name = "tree with masks", .config = {}, .is_constrained = true, .drafter = kRankTree}};
}

runner::RunnerConfig config_for(const RankSizes& sizes, const RankWay& way) {
  runner::RunnerConfig config = rank_config(way.drafter);
  if (way.max_total_tokens) config.max_total_tokens = way.max_total_tokens;
  config.graph_batch_sizes = way.graph_batch_sizes;
  // Lanes have two or three of the requests each.
  if (way.max_total_tokens && sizes.dp > 1) {
    config.max_total_tokens = kLaneBlocks * 64;
    config.context_length = kLaneBlocks * 64;
  }
  return config;
}

model::ModelOptions options_for(const RankWay& way) {
  model::ModelOptions options = kRankFloat32;
  options.load_mtp = way.drafter.num_steps > 0;
  return options;
}

std::unique_ptr<RankGroup> ranks_for(const RankSizes& sizes, const RankWay& way) {
  return make_ranks(sizes, options_for(way), config_for(sizes, way), std::chrono::seconds(5),
                    way.directory);
}

void expect_way_taken(const RankOutcome& outcome, const RankWay& way) {
  if (way.max_total_tokens) {
    EXPECT_GT(outcome.stats.num_retractions, 0) << "the cache was too large to test anything";
  }
  if (way.drafter.num_steps > 0) {
    EXPECT_GT(outcome.stats.num_drafts_accepted, 0);
  }
  if (way.config.radix_cache && !way.max_total_tokens && way.drafter.num_steps == 0) {
    EXPECT_GT(outcome.stats.num_cached_tokens, 0);
  }
}

}  // namespace fathom::engine::testing
