// ModelRunner with a drafter, batch by batch: limits of rows, simulated acceptance and what aborts. Through the engine:
// tests/engine/model_speculation_test.cc.

#include <gtest/gtest.h>

#include <numeric>

#include "base/startup_error.h"
#include "tests/runner/demo_model.h"

namespace fathom::runner {
namespace {

using core::Batch;
using core::Outputs;
using fathom::testing::fast_demo_model;
using fathom::testing::greedy;

RunnerConfig config_of(const DrafterInfo& drafter) {
  return {.max_slots = 2,
          .max_batch_tokens = 128,
          .context_length = 512,
          .max_total_tokens = 1024,
          .num_threads = fathom::testing::kNumThreads,
          .drafter = drafter};
}

constexpr DrafterInfo kChain = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4};

class DraftingRunner {
 public:
  explicit DraftingRunner(const RunnerConfig& config)
      : runner_(ModelRunner::create(fast_demo_model(), config)) {}

  core::SliceResult start(const std::vector<int32_t>& prompt, int32_t max_rows) {
    Batch batch{.step_id = runner_->next_step_id()};
    batch.admissions.push_back(
        {.slot = 0, .prompt = prompt, .max_rows = max_rows, .sampling = greedy(400)});
    std::vector<int32_t> blocks(8);
    std::iota(blocks.begin(), blocks.end(), 0);
    batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = blocks});
    batch.slices.push_back({.slot = 0,
                            .num_tokens = static_cast<int>(prompt.size()),
                            .tokens = prompt,
                            .num_drafts_to_propose = 3});
    return run(batch);
  }
  core::SliceResult verify(int num_drafts) {
    Batch batch{.step_id = runner_->next_step_id()};
    batch.slices.push_back({.slot = 0,
                            .num_tokens = 1 + num_drafts,
                            .outputs = num_drafts == 0 ? Outputs::kLast : Outputs::kAll,
                            .num_drafts_to_propose = 3});
    return run(batch);
  }
  core::SliceResult run(const Batch& batch) {
    runner_->submit(batch);
    return runner_->wait().slices.at(0);
  }
  ModelRunner& runner() { return *runner_; }

 private:
  std::unique_ptr<ModelRunner> runner_;
};

std::vector<int32_t> prompt() { return fathom::testing::load_golden()[0].prompt_ids; }

TEST(Drafter, nothing_comes_out_at_the_limit_of_rows) {
  DraftingRunner drafting(config_of(kChain));
  const auto length = static_cast<int32_t>(prompt().size());
  EXPECT_EQ(drafting.start(prompt(), length + 2).drafts.size(), 3u);
  // Two rows are left: the last token's and one draft's.
  const core::SliceResult last = drafting.verify(3);
  EXPECT_EQ(last.num_verified_drafts, 1);
  EXPECT_GE(last.tokens.size(), 1u);
  EXPECT_LE(last.tokens.size(), 2u);
  for (int step = 0; step < 3; ++step) {
    const core::SliceResult result = drafting.verify(step);
    const bool at_the_limit = step > 0 || last.tokens.size() == 2;
    EXPECT_EQ(result.tokens.empty(), at_the_limit) << "step " << step;
    EXPECT_EQ(result.error, "");
    if (at_the_limit) {
      EXPECT_EQ(result.num_verified_drafts, 0);
      EXPECT_TRUE(result.drafts.empty());
    }
  }
}

TEST(Drafter, a_shorter_depth_takes_the_first_drafts) {
  DraftingRunner drafting(config_of(kChain));
  const std::vector<core::Draft> drafts = drafting.start(prompt(), 500).drafts;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(drafts[static_cast<size_t>(i)].parent, i - 1);
  const core::SliceResult result = drafting.verify(1);
  EXPECT_EQ(result.num_verified_drafts, 1);
  EXPECT_EQ(result.tokens.at(0).token == drafts[0].token, result.tokens.size() == 2);
}

TEST(Drafter, simulated_acceptance_has_the_mean_that_was_asked_for) {
  RunnerConfig config = config_of(kChain);
  config.simulated_agreement = 0.6f;
  DraftingRunner drafting(config);
  std::vector<core::Draft> drafts = drafting.start(prompt(), 500).drafts;
  int num_tokens = 0, num_steps = 0;
  while (num_tokens < 400) {
    const core::SliceResult result = drafting.verify(3);
    for (size_t i = 0; i + 1 < result.tokens.size(); ++i)
      EXPECT_EQ(result.tokens[i].token, drafts.at(i).token);
    num_tokens += static_cast<int>(result.tokens.size());
    ++num_steps;
    drafts = result.drafts;
  }
  // 1 + 0.6 + 0.36 + 0.216; the standard deviation of the mean of 180 steps is 0.09.
  EXPECT_NEAR(static_cast<double>(num_tokens) / num_steps, 2.176, 0.3);
}

TEST(DrafterDeath, refuses_what_the_device_cannot_know) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  DraftingRunner drafting(config_of(kChain));
  drafting.start(prompt(), 500);
  EXPECT_DEATH(drafting.verify(4), "verifies 4 drafts, at most 3");
  drafting.verify(3);
  Batch given{.step_id = drafting.runner().next_step_id()};
  given.slices.push_back({.slot = 0, .num_tokens = 2, .tokens = {5, 6}});
  EXPECT_DEATH(drafting.run(given), "gets given tokens after it went on by itself");
}

TEST(Drafter, a_shape_that_cannot_work_is_a_start_up_error) {
  const auto message = [](const DrafterInfo& shape) {
    try {
      ModelRunner::create(fast_demo_model(), config_of(shape));
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.num_steps = 9, .top_k = 9, .num_draft_tokens = 16})
                .find("looks at more than 64 nodes: lower the steps or the top"),
            std::string::npos);
  EXPECT_NE(
      message({.num_steps = 2, .top_k = 1, .num_draft_tokens = 9}).find("does not make sense"),
      std::string::npos);
  EXPECT_EQ(message({.num_steps = 2, .top_k = 4, .num_draft_tokens = 64}), "");
}

}  // namespace
}  // namespace fathom::runner
