#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sched/prefill_budget.h"

namespace fathom::sched {
namespace {

constexpr double kCostTokenMacs = 4e6;
constexpr int kFewTokens = 8;

// What a machine really takes, each kind of work at its own speed.
struct Machine {
  double step = 2e-3, prompt_step = 1e-3;
  double linear = 5e-11, absorbed = 2e-11, expanded = 1.2e-11, decode = 8e-11;
  double seconds(const StepWork& work) const {
    return step + (work.num_chunks > 0 ? prompt_step : 0) + linear * work.prompts.linear +
           absorbed * work.prompts.absorbed + expanded * work.prompts.expanded +
           decode * (work.decodes.linear + work.decodes.absorbed);
  }
};

StepWork work_of(int num_decodes, core::SliceWork prompts) {
  StepWork work;
  for (int i = 0; i < num_decodes; ++i)
    work.add_decode({.linear = kCostTokenMacs, .absorbed = 2e7});
  if (prompts != core::SliceWork{}) work.add_prompt(prompts);
  return work;
}

core::SliceWork chunk(double tokens, double absorbed, double expanded) {
  return {.linear = tokens * kCostTokenMacs, .absorbed = absorbed, .expanded = expanded};
}

// A little of everything that a server meets.
StepWork random_work(std::mt19937& random) {
  const auto pick = [&](double max) {
    return std::uniform_real_distribution<double>(0, max)(random);
  };
  const int num_decodes = static_cast<int>(pick(16));
  if (pick(1) < 0.5) return work_of(1 + num_decodes, {});
  const bool is_absorbed = pick(1) < 0.5;
  return work_of(num_decodes, chunk(1 + pick(is_absorbed ? 64 : 2000), is_absorbed ? pick(2e9) : 0,
                                    is_absorbed ? 0 : pick(2e10)));
}

void expect_close(const StepCost& cost, const Machine& machine, double slowdown, double tolerance) {
  for (const StepWork& work : {work_of(1, {}), work_of(12, {}), work_of(0, chunk(1500, 0, 1e10)),
                               work_of(8, chunk(40, 1e9, 0)), work_of(4, chunk(500, 0, 2e9))}) {
    const double truth = slowdown * machine.seconds(work);
    EXPECT_NEAR(cost.seconds(work), truth, tolerance * truth)
        << work.num_decodes << " decodes, " << work.prompts.linear / kCostTokenMacs << " tokens";
  }
}

TEST(StepCost, one_measured_prompt_tells_what_others_cost_within_the_differences_of_speeds) {
  StepCost cost(kCostTokenMacs, kFewTokens);
  EXPECT_FALSE(cost.knows_prompts());
  EXPECT_EQ(cost.seconds(work_of(2, chunk(64, 1e8, 0))), 0);
  const Machine machine;
  cost.observe(work_of(0, chunk(64, 1e8, 0)), machine.seconds(work_of(0, chunk(64, 1e8, 0))));
  EXPECT_TRUE(cost.knows_prompts());
  const StepWork unseen = work_of(0, chunk(1500, 0, 1e10));
  EXPECT_GT(cost.seconds(unseen), machine.seconds(unseen) / 5);
  EXPECT_LT(cost.seconds(unseen), machine.seconds(unseen) * 5);
}

TEST(StepCost, is_within_a_tenth_after_forty_steps) {
  std::mt19937 random(1);
  const Machine machine;
  StepCost cost(kCostTokenMacs, kFewTokens);
  for (int i = 0; i < 40; ++i) {
    const StepWork work = random_work(random);
    cost.observe(work, machine.seconds(work));
  }
  expect_close(cost, machine, 1, 0.1);
  EXPECT_LT(cost.error(), 0.3);
}

TEST(StepCost, stands_noise_a_slow_first_step_and_steps_that_were_held_up) {
  std::mt19937 random(2);
  const Machine machine;
  StepCost cost(kCostTokenMacs, kFewTokens);
  for (int i = 0; i < 200; ++i) {
    const StepWork work = random_work(random);
    double factor = std::uniform_real_distribution<double>(0.85, 1.15)(random);
    if (i == 0) factor = 50;
    if (i % 20 == 7) factor = 10;
    if (i % 20 == 13) factor = 0.1;
    cost.observe(work, factor * machine.seconds(work));
  }
  expect_close(cost, machine, 1, 0.3);
}

TEST(StepCost, follows_a_machine_that_gets_slower_or_faster_within_eight_steps) {
  std::mt19937 random(3);
  const Machine machine;
  StepCost cost(kCostTokenMacs, kFewTokens);
  for (const double slowdown : {1.0, 3.0, 1.0}) {
    for (int i = 0; i < 60; ++i) {
      const StepWork work = random_work(random);
      cost.observe(work, slowdown * machine.seconds(work));
      if (i == 8 && slowdown == 3) expect_close(cost, machine, slowdown, 0.4);
    }
    expect_close(cost, machine, slowdown, 0.4);
  }
}

TEST(StepCost, keeps_what_it_knows_of_prompts_through_ten_thousand_steps_without_any) {
  std::mt19937 random(4);
  const Machine machine;
  StepCost cost(kCostTokenMacs, kFewTokens);
  for (int i = 0; i < 100; ++i) {
    const StepWork work = random_work(random);
    cost.observe(work, machine.seconds(work));
  }
  for (int i = 0; i < 10'000; ++i) cost.observe(work_of(8, {}), machine.seconds(work_of(8, {})));
  const StepWork work = work_of(8, chunk(300, 0, 3e9));
  EXPECT_NEAR(cost.seconds(work), machine.seconds(work), 0.1 * machine.seconds(work));
}

// Reading the weights of a large model takes a GPU as long as computing hundreds of tokens: DeepSeek-V3 on eight H200.
TEST(StepCost, chunks_grow_where_a_step_costs_as_much_as_hundreds_of_tokens) {
  constexpr double kSeconds = 0.02, kDecodes = 24e-3, kStart = 17e-3, kToken = 30e-6;
  StepCost cost(kCostTokenMacs, 256);
  PrefillBudget budget([](int tokens, int64_t) { return chunk(tokens, 0, 0); }, 64);
  const auto planned = [&] {
    budget.start({.num_tokens = 8192, .seconds = kSeconds, .cost = &cost});
    PrefillBudget::Chunk share = budget.take({.num_wanted = 8192});
    budget.take_more(share);
    return share.num_tokens;
  };
  cost.observe(work_of(8, {}), kDecodes);
  for (int i = 0; i < 2000; ++i) {
    const int tokens = i == 0 ? 64 : planned();
    cost.observe(work_of(8, chunk(tokens, 0, 0)), kDecodes + kStart + kToken * tokens);
    cost.observe(work_of(8, {}), kDecodes);
  }
  EXPECT_GT(planned(), 0.6 * kSeconds / kToken);
  EXPECT_LT(planned(), 1.2 * kSeconds / kToken);
}

TEST(StepCost, is_the_same_for_the_same_steps_and_never_negative) {
  std::mt19937 random(5);
  StepCost one(kCostTokenMacs, kFewTokens), other(kCostTokenMacs, kFewTokens);
  for (int i = 0; i < 300; ++i) {
    const StepWork work = random_work(random);
    const double seconds = std::uniform_real_distribution<double>(1e-6, 1)(random);
    one.observe(work, seconds);
    other.observe(work, seconds);
    const StepWork next = random_work(random);
    EXPECT_EQ(one.seconds(next), other.seconds(next));
    EXPECT_GE(one.decode_seconds(next), 0);
    EXPECT_GE(one.prompt_seconds(next.prompts), 0);
    EXPECT_TRUE(std::isfinite(one.seconds(next)));
  }
}

}  // namespace
}  // namespace fathom::sched
