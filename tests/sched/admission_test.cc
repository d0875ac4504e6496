// Who is admitted when: policy, priorities, fairness, deferral.

#include "tests/sched/step_driver.h"

namespace fathom::sched {
namespace {

using testing::StepDriver;
using testing::text;
using Ids = std::vector<core::RequestId>;

constexpr int kBlockTokens = 4;

SchedulerConfig config(int max_running, SchedulePolicy policy = SchedulePolicy::kLpm) {
  return {.num_slots = max_running,
          .max_batch_tokens = 64,
          .kv_groups = {{.num_blocks = 200, .block_tokens = kBlockTokens}},
          .chunked_prefill_size = 64,
          .max_running_requests = max_running,
          .policy = policy};
}

TEST(Admission, fcfs_admits_by_arrival_whatever_is_cached) {
  StepDriver driver(config(1, SchedulePolicy::kFcfs));
  driver.add({.prompt = text(9, 1)});
  driver.run();
  driver.add({.prompt = text(9, 2)});
  driver.add({.prompt = text(9, 1)});
  driver.run();
  EXPECT_EQ(driver.order_of_admission(), (Ids{0, 1, 2}));
}

TEST(Admission, lpm_admits_the_longest_cached_prefix_first_and_equal_ones_by_arrival) {
  StepDriver driver(config(1));
  driver.add({.prompt = text(13, 1)});
  driver.run();
  driver.add({.prompt = text(9, 2)});
  driver.add({.prompt = text(5, 1)});  // one block cached
  driver.add({.prompt = text(9, 3)});
  driver.add({.prompt = text(13, 1)});  // three blocks
  driver.run();
  EXPECT_EQ(driver.order_of_admission(), (Ids{0, 4, 2, 1, 3}));
}

TEST(Admission, lpm_lets_a_bounded_number_overtake_a_request_without_a_prefix) {
  StepDriver driver(config(1));
  driver.add({.prompt = text(9, 1)});
  driver.run();
  const Sequence& cold = driver.add({.prompt = text(9, 2), .max_new_tokens = 1});
  for (int i = 0; i < WaitingQueue::kMaxOvertaken + 20; ++i)
    driver.add({.prompt = text(9, 1), .max_new_tokens = 1});
  driver.run();
  const Ids& order = driver.order_of_admission();
  const auto place = std::find(order.begin(), order.end(), cold.id) - order.begin();
  // The first of all came before; then exactly as many as the bound says.
  EXPECT_EQ(place - 1, WaitingQueue::kMaxOvertaken);
}

TEST(Admission, higher_priorities_go_first_whatever_is_cached) {
  StepDriver driver(config(1));
  driver.add({.prompt = text(9, 1)});
  driver.run();
  driver.add({.prompt = text(9, 1), .priority = 0});
  driver.add({.prompt = text(9, 2), .priority = 1});
  driver.add({.prompt = text(9, 3), .priority = -1});
  driver.add({.prompt = text(9, 4), .priority = 2});
  driver.run();
  EXPECT_EQ(driver.order_of_admission(), (Ids{0, 4, 2, 1, 3}));
}

TEST(Admission, a_request_waits_for_the_prefix_that_a_running_one_computes_and_then_uses_it) {
  for (const SchedulePolicy policy : {SchedulePolicy::kLpm, SchedulePolicy::kFcfs}) {
    SchedulerConfig small_chunks = config(8, policy);
    small_chunks.chunked_prefill_size = 8;
    StepDriver driver(small_chunks);
    driver.add({.prompt = text(41, 1)});
    const Sequence& second = driver.add({.prompt = text(41, 1)});
    const Sequence& stranger = driver.add({.prompt = text(3, 2), .max_new_tokens = 1});
    driver.step();
    driver.step();
    EXPECT_TRUE(stranger.ended) << "a deferred request must not hold others up";
    driver.run();
    EXPECT_EQ(second.num_cached_tokens, 40);
    EXPECT_EQ(driver.scheduler().stats().num_prefill_tokens, 41 + 1 + 3);
    // 44 prompt tokens in chunks of 8, then the second's last token and its three decodes and the release.
    EXPECT_LE(driver.num_steps(), 6 + 4 + 2);
  }
}

TEST(Admission, deferral_is_bounded_in_steps) {
  SchedulerConfig tiny_chunks = config(8);
  tiny_chunks.chunked_prefill_size = 2;
  tiny_chunks.kv_groups[0].num_blocks = 2000;
  StepDriver driver(tiny_chunks);
  driver.add({.prompt = text(400, 1)});
  const Sequence& second = driver.add({.prompt = text(400, 1)});
  int num_steps = 0;
  for (; second.num_cached_tokens < 0; ++num_steps) driver.step();
  // The first step's budget went to the first request, so the second was not looked at.
  EXPECT_EQ(num_steps, 1 + WaitingQueue::kMaxDeferredSteps + 1);
  EXPECT_GE(second.num_cached_tokens, WaitingQueue::kMaxDeferredSteps * 2 - kBlockTokens);
  driver.run();
}

TEST(Admission, other_salts_and_uncached_readers_are_not_deferred) {
  SchedulerConfig small_chunks = config(8);
  small_chunks.chunked_prefill_size = 16;
  StepDriver driver(small_chunks);
  driver.add({.prompt = text(41, 1)});
  const Sequence& salted = driver.add({.prompt = text(41, 1), .salt = "b"});
  Sequence& scored = driver.add({.prompt = text(41, 1)});
  scored.reads_cache = false;
  driver.step();
  EXPECT_GE(salted.slot, 0);
  driver.step();
  EXPECT_GE(scored.slot, 0);
  driver.run();
  EXPECT_EQ(salted.num_cached_tokens, 0);
  EXPECT_EQ(scored.num_cached_tokens, 0);
}

TEST(Admission, a_long_prompt_neither_blocks_decodes_nor_holds_short_prompts_up) {
  SchedulerConfig shared = config(16);
  shared.chunked_prefill_size = 32;
  shared.kv_groups[0].num_blocks = 1000;
  StepDriver driver(shared);
  const Sequence& decoding = driver.add({.prompt = text(4, 1), .max_new_tokens = 100});
  driver.step();
  const Sequence& huge = driver.add({.prompt = text(1000, 2)});
  driver.step();
  EXPECT_EQ(driver.tokens_of(huge), 32);  // nobody else wants the budget
  int most_steps = 0;
  for (int i = 0; i < 12; ++i) {
    const Sequence& brief = driver.add({.prompt = text(15, 3 + i), .max_new_tokens = 1});
    int num_steps = 0;
    for (; !brief.ended; ++num_steps) {
      const int decoded_before = decoding.num_output_tokens();
      driver.step();
      EXPECT_EQ(decoding.num_output_tokens(), decoded_before + 1);
      EXPECT_GE(driver.tokens_of(huge), 16) << "the long prompt's half";
    }
    most_steps = std::max(most_steps, num_steps);
  }
  EXPECT_EQ(most_steps, 1);
  driver.run();
}

TEST(Admission, a_stream_of_short_prompts_leaves_a_long_one_its_half) {
  SchedulerConfig shared = config(16);
  shared.chunked_prefill_size = 16;
  shared.kv_groups[0].num_blocks = 1000;
  StepDriver driver(shared);
  const Sequence& huge = driver.add({.prompt = text(160, 1), .max_new_tokens = 1});
  int num_steps = 0;
  for (; !huge.ended && num_steps < 100; ++num_steps) {
    for (int i = 0; i < 3; ++i)
      driver.add({.prompt = text(7, 10 + 3 * num_steps + i), .max_new_tokens = 1});
    driver.step();
  }
  EXPECT_LE(num_steps, 160 / 8);
}

}  // namespace
}  // namespace fathom::sched
