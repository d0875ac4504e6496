#include "sched/prefill_budget.h"

#include <gtest/gtest.h>

namespace fathom::sched {
namespace {

constexpr int kBudgetBlockTokens = 64;
constexpr double kBudgetTokenMacs = 1e6;

core::SliceWork linear_work(int num_tokens, int64_t kv_begin) {
  return {.linear = num_tokens * kBudgetTokenMacs,
          .absorbed = static_cast<double>(num_tokens) * static_cast<double>(kv_begin) * 1e3};
}

// A machine that takes a microsecond for a token, and one for each token behind a thousand rows.
StepCost microsecond_tokens() {
  StepCost cost(kBudgetTokenMacs, 8);
  for (int i = 0; i < 200; ++i) {
    StepWork work;
    const int num_tokens = 100 + 37 * (i % 50), kv_begin = 911 * (i % 7);
    work.add_prompt(linear_work(num_tokens, kv_begin));
    cost.observe(work, 1e-6 * num_tokens * (1 + kv_begin / 1000.0));
  }
  return cost;
}

class TimedBudget : public ::testing::Test {
 protected:
  void start(int num_tokens, double seconds) {
    budget_.start({.num_tokens = num_tokens, .seconds = seconds, .cost = &cost_});
  }
  int take(int first_position, int num_wanted) {
    return budget_.take({.first_position = first_position, .num_wanted = num_wanted}).num_tokens;
  }
  StepCost cost_ = microsecond_tokens();
  PrefillBudget budget_{linear_work, kBudgetBlockTokens};
};

TEST(PrefillBudget, without_a_time_limit_long_prompts_share_one_half_and_get_what_is_left) {
  PrefillBudget budget(linear_work, kBudgetBlockTokens);
  budget.start({.num_tokens = 1000});
  PrefillBudget::Chunk first = budget.take({.num_wanted = 5000});
  EXPECT_EQ(first.num_tokens, 500);
  EXPECT_EQ(budget.take({.num_wanted = 5000}).num_tokens, 0);
  EXPECT_EQ(budget.take({.num_wanted = 300}).num_tokens, 300);
  EXPECT_EQ(budget.take({.num_wanted = 5000, .min_tokens = 64, .must_advance = true}).num_tokens,
            64);
  EXPECT_FALSE(budget.is_spent());
  budget.take_more(first);
  EXPECT_EQ(first.num_tokens, 636);
  EXPECT_TRUE(budget.is_spent());
  EXPECT_FALSE(budget.cut_by_time());
}

TEST_F(TimedBudget, cuts_a_long_prompt_to_what_fits_and_ends_it_at_a_block) {
  start(8192, 2e-3);
  PrefillBudget::Chunk chunk = budget_.take({.first_position = 640, .num_wanted = 20'000});
  budget_.take_more(chunk);
  // 2000 us at 1.64 us a token are 1219 tokens.
  EXPECT_GT(chunk.num_tokens, 1050);
  EXPECT_LT(chunk.num_tokens, 1250);
  EXPECT_EQ((chunk.first_position + chunk.num_tokens) % kBudgetBlockTokens, 0);
  EXPECT_TRUE(budget_.cut_by_time());
}

TEST_F(TimedBudget, gives_less_far_behind_in_a_prompt) {
  start(8192, 2e-3);
  PrefillBudget::Chunk near = budget_.take({.first_position = 0, .num_wanted = 20'000});
  budget_.take_more(near);
  start(8192, 2e-3);
  PrefillBudget::Chunk far = budget_.take({.first_position = 20'000, .num_wanted = 20'000});
  budget_.take_more(far);
  EXPECT_NEAR(static_cast<double>(near.num_tokens) / far.num_tokens, 21, 4);
}

TEST_F(TimedBudget, leaves_a_short_prompt_its_half_beside_a_long_one) {
  start(8192, 2e-3);
  const int of_long = take(0, 20'000);
  EXPECT_NEAR(of_long, 1000, 130);
  EXPECT_EQ(take(0, 800), 800);
}

TEST_F(TimedBudget, always_lets_the_first_prompt_and_whoever_is_admitted_advance) {
  start(8192, 1e-9);
  EXPECT_EQ(take(20'000, 5000), 1);
  EXPECT_EQ(take(20'000, 5000), 0);
  EXPECT_EQ(budget_
                .take({.first_position = 9000,
                       .num_wanted = 5000,
                       .min_tokens = kBudgetBlockTokens,
                       .must_advance = true})
                .num_tokens,
            1);
  EXPECT_TRUE(budget_.is_spent());
}

TEST_F(TimedBudget, does_not_cut_what_fits) {
  start(1000, 1);
  EXPECT_EQ(take(3, 117), 117);
  EXPECT_FALSE(budget_.cut_by_time());
  EXPECT_FALSE(budget_.is_spent());
}

TEST_F(TimedBudget, rounds_a_short_chunk_by_an_eighth_at_most) {
  for (int microseconds = 20; microseconds < 600; microseconds += 7) {
    start(8192, 1e-6 * microseconds);
    PrefillBudget::Chunk chunk = budget_.take({.first_position = 0, .num_wanted = 20'000});
    budget_.take_more(chunk);
    EXPECT_GE(chunk.num_tokens, microseconds * 0.8) << microseconds << " us";
    EXPECT_LE(chunk.num_tokens, microseconds * 1.1) << microseconds << " us";
  }
}

TEST(LaneBudgets, share_tokens_and_have_the_time_each_for_itself) {
  const StepCost cost = microsecond_tokens();
  PrefillBudget budget(linear_work, kBudgetBlockTokens, /*num_lanes=*/2);
  budget.start({.num_tokens = 1000, .seconds = 300e-6, .cost = &cost});
  const auto take = [&](int lane, int num_wanted) {
    return budget.take({.num_wanted = num_wanted, .lane = lane}).num_tokens;
  };
  // Each as many as its time allows.
  EXPECT_EQ(take(0, 200), 200);
  EXPECT_LE(take(0, 200), 110);
  EXPECT_TRUE(budget.is_spent(0));
  EXPECT_FALSE(budget.is_spent(1));
  EXPECT_EQ(take(1, 200), 200);
  EXPECT_FALSE(budget.is_spent());
  // A lane whose sequences decode for long has less.
  budget.start({.num_tokens = 1000, .seconds = 300e-6, .cost = &cost});
  budget.set_lane_seconds(1, 100e-6);
  EXPECT_EQ(take(0, 200), 200);
  EXPECT_LE(take(1, 200), 110);
  // Tokens run out for both.
  budget.start({.num_tokens = 250, .seconds = 1, .cost = &cost});
  EXPECT_EQ(take(0, 200), 200);
  EXPECT_EQ(take(1, 200), 50);
  EXPECT_TRUE(budget.is_spent());
}

}  // namespace
}  // namespace fathom::sched
