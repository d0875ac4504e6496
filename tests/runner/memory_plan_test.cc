#include "runner/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/startup_error.h"
#include "runner/model_runner.h"
#include "tests/runner/demo_model.h"

namespace fathom::runner {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

MeasuredMemory measured() {
  return {.weight_bytes = 100 * kMiB,
          .step = {.workspace_bytes = 10 * kMiB},
          .free_bytes = 64 * kMiB,
          .block_bytes = kMiB,
          .block_tokens = 64};
}

std::string error_of(const PoolRequest& request) {
  try {
    plan_kv_pool(measured(), request);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "planned";
}

TEST(MemoryPlan, gives_the_fraction_of_what_is_left) {
  const MemoryPlan plan = plan_kv_pool(
      measured(), {.mem_fraction_static = 0.5, .context_tokens = 4096, .max_slots = 8});
  EXPECT_EQ(plan.num_blocks, 32);
  EXPECT_EQ(plan.pool_bytes, 32 * kMiB);
  EXPECT_EQ(plan.pool_tokens, 2048);
  EXPECT_EQ(plan.max_context_tokens, 2048);
  EXPECT_THAT(plan.describe(), HasSubstr("cache=32.0 MiB (2048 tokens of 16384 bytes in 32 "
                                         "blocks of 1.0 MiB, set by mem_fraction_static)"));
  EXPECT_THAT(plan.describe(), HasSubstr("weights=100.0 MiB largest_step=10.0 MiB"));
}

TEST(MemoryPlan, takes_no_more_than_the_slots_can_use) {
  const MemoryPlan plan =
      plan_kv_pool(measured(), {.mem_fraction_static = 1.0, .context_tokens = 100, .max_slots = 3});
  EXPECT_EQ(plan.num_blocks, 6);
  EXPECT_EQ(plan.max_context_tokens, 100);
  EXPECT_EQ(plan.reason, "max_running_requests * context");
}

TEST(MemoryPlan, rounds_max_total_tokens_up_to_blocks) {
  const MemoryPlan plan =
      plan_kv_pool(measured(), {.max_total_tokens = 65, .context_tokens = 4096, .max_slots = 8});
  EXPECT_EQ(plan.num_blocks, 2);
  EXPECT_EQ(plan.max_context_tokens, 128);
}

TEST(MemoryPlan, says_what_does_not_fit_and_what_to_change) {
  EXPECT_EQ(error_of({.max_total_tokens = 65 * 64, .context_tokens = 64, .max_slots = 1}),
            "a cache of max_total_tokens = 4160 needs 65.0 MiB (65 blocks of 64 tokens), but 64.0 "
            "MiB are free after weights (100.0 MiB) and the largest step (10.0 MiB): lower "
            "--max-total-tokens or the largest step (--chunked-prefill-size, "
            "--max-running-requests)");
  EXPECT_THAT(error_of({.mem_fraction_static = 0.5,
                        .context_tokens = 2049,
                        .context_required = true,
                        .max_slots = 1}),
              HasSubstr("one sequence of 2049 tokens needs 33.0 MiB"));
  EXPECT_THAT(error_of({.mem_fraction_static = 0.01, .context_tokens = 64, .max_slots = 1}),
              HasSubstr("one sequence of 1 tokens needs 1.0 MiB"));
  EXPECT_THAT(error_of({.mem_fraction_static = 0, .context_tokens = 64, .max_slots = 1}),
              HasSubstr("must be in (0, 1]"));
  EXPECT_THAT(error_of({.max_total_tokens = 0, .context_tokens = 64, .max_slots = 1}),
              HasSubstr("max_total_tokens is 0"));
}

TEST(MemoryPlan, of_a_runner_counts_what_it_allocated) {
  const auto runner = ModelRunner::create(
      fathom::testing::demo_model(),
      {.max_slots = 2, .max_batch_tokens = 32, .context_length = 128, .max_total_tokens = 640});
  const MemoryPlan& plan = runner->plan();
  EXPECT_EQ(plan.measured.weight_bytes, fathom::testing::demo_model().weight_bytes());
  EXPECT_GT(plan.measured.step.workspace_bytes, 0);
  EXPECT_GT(plan.measured.step.logits_bytes, 0);
  EXPECT_GT(plan.measured.step.slots_bytes, 0);
  EXPECT_GT(plan.measured.step.sampler_bytes, 0);
  EXPECT_GT(plan.measured.step.scratch_bytes, 0);
  EXPECT_EQ(plan.num_blocks, 10);
  EXPECT_EQ(runner->info().kv_groups.at(0).num_blocks, 10);
  EXPECT_EQ(runner->info().max_context_tokens, 128);
}

TEST(MemoryPlan, of_a_runner_refuses_settings_out_of_range) {
  const auto error = [](const RunnerConfig& config) -> std::string {
    try {
      ModelRunner::create(fathom::testing::demo_model(), config);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "created";
  };
  EXPECT_EQ(error({.max_slots = 0}), "max_slots is 0, must be >= 1");
  EXPECT_THAT(error({.max_slots = 9, .max_batch_tokens = 8}),
              HasSubstr("max_batch_tokens is 8, must be >= the running requests, 9"));
  EXPECT_THAT(error({.context_length = 1 << 30}), HasSubstr("context_length is 1073741824"));
}

}  // namespace
}  // namespace fathom::runner
