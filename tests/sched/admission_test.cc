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

SchedulerConfig roomy(int max_running, int chunk) {
  SchedulerConfig wide = config(max_running);
  wide.max_batch_tokens = std::max(64, chunk);
  wide.chunked_prefill_size = chunk;
  wide.kv_groups[0].num_blocks = 4000;
  return wide;
}

// Steps until it has ended.
int steps_to_end(StepDriver& driver, const Sequence& sequence) {
  int num_steps = 0;
  for (; !sequence.ended && num_steps < 10'000; ++num_steps) driver.step();
  return num_steps;
}

TEST(FanOut, a_body_of_many_prompts_gets_one_turn_among_others) {
  for (const SchedulePolicy policy : {SchedulePolicy::kLpm, SchedulePolicy::kFcfs}) {
    for (const int length : {7, 40, 200}) {  // shorter than a step, and longer
      SchedulerConfig narrow = roomy(16, 64);
      narrow.policy = policy;
      StepDriver driver(narrow);
      for (int i = 0; i < 50; ++i)
        driver.add({.prompt = text(length, 1 + i), .max_new_tokens = 1, .fan_out = 1});
      driver.step();
      const Sequence& brief = driver.add({.prompt = text(9, 100), .max_new_tokens = 1});
      EXPECT_LE(steps_to_end(driver, brief), 3) << length;
      const Sequence& equal = driver.add({.prompt = text(length, 101), .max_new_tokens = 1});
      // What stood in line before it, and its own.
      EXPECT_LE(steps_to_end(driver, equal), 2 * length / 64 + 3) << length;
      driver.run();
    }
  }
}

TEST(FanOut, two_bodies_take_turns) {
  StepDriver driver(roomy(16, 64));
  std::vector<const Sequence*> first, second;
  for (int i = 0; i < 20; ++i)
    first.push_back(&driver.add({.prompt = text(100, 1 + i), .max_new_tokens = 1, .fan_out = 1}));
  for (int i = 0; i < 20; ++i)
    second.push_back(&driver.add({.prompt = text(100, 50 + i), .max_new_tokens = 1, .fan_out = 2}));
  const auto num_ended = [](const std::vector<const Sequence*>& of) {
    return std::count_if(of.begin(), of.end(), [](const Sequence* s) { return s->ended; });
  };
  while (num_ended(first) < 20) {
    driver.step();
    EXPECT_LE(std::abs(num_ended(first) - num_ended(second)), 2);
  }
  driver.run();
}

TEST(FanOut, a_body_by_itself_computes_as_much_in_every_step_as_requests_of_their_own) {
  for (const int length : {7, 40, 100, 200}) {
    int64_t num_steps[2] = {};
    for (const bool together : {false, true}) {
      StepDriver driver(roomy(16, 64));
      for (int i = 0; i < 30; ++i)
        driver.add({.prompt = text(length, 1 + i), .max_new_tokens = 1, .fan_out = together});
      driver.run();
      num_steps[together] = driver.num_steps();
    }
    EXPECT_LE(num_steps[1], num_steps[0] + 1) << length;
  }
}

TEST(FanOut, choices_of_one_prompt_share_it_and_start_together) {
  StepDriver driver(roomy(16, 64));
  std::vector<const Sequence*> choices;
  for (int i = 0; i < 16; ++i)
    choices.push_back(&driver.add({.prompt = text(200, 1), .max_new_tokens = 8, .fan_out = 1}));
  for (int i = 0; i < 5; ++i) driver.step();
  for (const Sequence* const choice : choices) EXPECT_GE(choice->slot, 0);
  driver.run();
  for (size_t i = 1; i < choices.size(); ++i) EXPECT_EQ(choices[i]->num_cached_tokens, 196);
}

TEST(FanOut, prompts_that_begin_with_what_is_cached_do_not_all_go_first) {
  StepDriver driver(roomy(2, 64));
  driver.add({.prompt = text(9, 1), .max_new_tokens = 1});
  driver.run();
  for (int i = 0; i < 30; ++i) {
    std::vector<int32_t> prompt = text(8, 1);
    const std::vector<int32_t> rest = text(60, 2 + i);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    driver.add({.prompt = prompt, .max_new_tokens = 1, .fan_out = 1});
  }
  driver.step();
  const Sequence& cold = driver.add({.prompt = text(9, 100), .max_new_tokens = 1});
  EXPECT_LE(steps_to_end(driver, cold), 3);
  driver.run();
}

TEST(FanOut, a_body_keeps_no_more_than_half_of_the_slots_from_others) {
  StepDriver driver(roomy(8, 64));
  std::vector<const Sequence*> choices;
  for (int i = 0; i < 16; ++i)
    choices.push_back(&driver.add({.prompt = text(5, 1 + i), .max_new_tokens = 300, .fan_out = 1}));
  const auto num_running = [&] {
    return std::count_if(choices.begin(), choices.end(),
                         [](const Sequence* choice) { return choice->slot >= 0; });
  };
  for (int i = 0; i < 5; ++i) driver.step();
  EXPECT_EQ(num_running(), 8);  // nobody else is there
  std::vector<const Sequence*> others;
  for (int i = 0; i < 6; ++i)
    others.push_back(&driver.add({.prompt = text(5, 50 + i), .max_new_tokens = 100}));
  for (int i = 0; i < 12; ++i) driver.step();
  EXPECT_EQ(num_running(), 4);
  EXPECT_EQ(std::count_if(others.begin(), others.end(), [](const auto* s) { return s->slot >= 0; }),
            4);
  EXPECT_EQ(driver.scheduler().stats().num_retractions, 4);
  while (!others.back()->ended) {
    driver.step();
    EXPECT_GE(num_running(), 4);
  }
  driver.step();
  driver.step();
  EXPECT_EQ(num_running(), 8);
  driver.run();
}

TEST(FanOut, what_has_no_room_beside_its_own_holds_nobody_up) {
  SchedulerConfig tight = roomy(8, 64);
  tight.kv_groups[0].num_blocks = 60;  // 240 rows: two of a hundred
  StepDriver driver(tight);
  for (int i = 0; i < 8; ++i)
    driver.add({.prompt = text(100, 1 + i), .max_new_tokens = 10, .fan_out = 1});
  for (int i = 0; i < 6; ++i) driver.step();
  const Sequence& brief = driver.add({.prompt = text(9, 100), .max_new_tokens = 1});
  EXPECT_LE(steps_to_end(driver, brief), 2);
  driver.run();
}

TEST(FanOut, one_that_ends_while_it_stands_behind_is_forgotten) {
  StepDriver driver(roomy(2, 64));
  std::vector<Sequence*> all;
  for (int i = 0; i < 40; ++i)
    all.push_back(&driver.add({.prompt = text(30, 1 + i), .max_new_tokens = 2, .fan_out = 7}));
  driver.step();
  EXPECT_EQ(driver.scheduler().num_waiting() + driver.scheduler().num_running(), 40);
  for (size_t i = 39; i > 5; i -= 2) driver.end(*all[i]);
  driver.run();
  EXPECT_EQ(driver.scheduler().num_waiting(), 0);
}

int64_t num_running(const std::vector<const Sequence*>& sequences) {
  return std::ranges::count_if(sequences, [](const Sequence* one) { return one->slot >= 0; });
}

TEST(Owners, one_keeps_no_more_than_half_of_the_slots_from_others) {
  StepDriver driver(roomy(8, 64));
  std::vector<const Sequence*> alices, bobs;
  for (int i = 0; i < 20; ++i) {
    alices.push_back(&driver.add(
        {.prompt = text(5, 1 + i), .max_new_tokens = 300, .fan_out = i / 4, .owner = 1}));
  }
  for (int i = 0; i < 5; ++i) driver.step();
  EXPECT_EQ(num_running(alices), 8);  // nobody else is there
  const Sequence& first = driver.add({.prompt = text(5, 40), .max_new_tokens = 1, .owner = 2});
  EXPECT_LE(steps_to_end(driver, first), 3);
  for (int i = 0; i < 6; ++i) {
    bobs.push_back(&driver.add({.prompt = text(5, 50 + i), .max_new_tokens = 100, .owner = 2}));
  }
  for (int i = 0; i < 12; ++i) driver.step();
  EXPECT_EQ(num_running(alices), 4);
  EXPECT_EQ(num_running(bobs), 4);
  while (!bobs.back()->ended) {
    driver.step();
    EXPECT_GE(num_running(alices), 4);
  }
  driver.step();
  driver.step();
  EXPECT_EQ(num_running(alices), 8);
  driver.run();
}

TEST(Owners, take_no_turns_within_an_only_slot) {
  StepDriver driver(roomy(1, 64));
  for (int i = 0; i < 8; ++i) {
    driver.add({.prompt = text(5, 1 + i),
                .max_new_tokens = 20,
                .fan_out = 1 + i % 2,
                .owner = static_cast<uint64_t>(i % 2)});
  }
  driver.run();
  EXPECT_EQ(driver.scheduler().stats().num_retractions, 0);
}

TEST(GivingWay, is_for_whoever_waits_and_only_as_long) {
  StepDriver driver(roomy(2, 64));
  std::vector<Sequence*> unread;
  for (int i = 0; i < 2; ++i) {
    unread.push_back(&driver.add({.prompt = text(9, 1 + i), .max_new_tokens = 100}));
    driver.scheduler().set_gives_way(*unread.back(), true);
  }
  for (int i = 0; i < 5; ++i) driver.step();
  EXPECT_GE(unread[0]->slot, 0);  // nobody waits
  EXPECT_GE(unread[1]->slot, 0);
  const Sequence& first = driver.add({.prompt = text(9, 10), .max_new_tokens = 20});
  const Sequence& second = driver.add({.prompt = text(9, 11), .max_new_tokens = 20});
  for (int i = 0; i < 4; ++i) driver.step();
  EXPECT_GE(first.slot, 0);
  EXPECT_GE(second.slot, 0);
  EXPECT_LT(unread[0]->slot, 0);
  const Sequence& third = driver.add({.prompt = text(9, 12), .max_new_tokens = 20});
  for (int i = 0; i < 24; ++i) driver.step();
  EXPECT_GE(third.slot, 0);  // it came later and is not kept waiting
  driver.scheduler().set_gives_way(*unread[0], false);
  const Sequence& fourth = driver.add({.prompt = text(9, 13), .max_new_tokens = 20});
  EXPECT_GT(steps_to_end(driver, fourth), 0);
  EXPECT_GT(unread[0]->num_output_tokens(), 20) << "it was retracted, so it goes before the fourth";
  driver.run();
  EXPECT_EQ(unread[0]->num_output_tokens(), 100);
  EXPECT_EQ(unread[1]->num_output_tokens(), 100);
}

TEST(GivingWay, is_for_lower_priorities_too) {
  StepDriver driver(roomy(1, 64));
  Sequence& unread = driver.add({.prompt = text(9, 1), .max_new_tokens = 50, .priority = 1});
  driver.scheduler().set_gives_way(unread, true);
  driver.step();
  const Sequence& low = driver.add({.prompt = text(9, 2), .max_new_tokens = 20, .priority = -1});
  EXPECT_LE(steps_to_end(driver, low), 23);
  EXPECT_EQ(driver.scheduler().stats().num_retractions, 1);
  driver.run();
}

TEST(GivingWay, gives_blocks_too) {
  SchedulerConfig tight = roomy(8, 64);
  tight.kv_groups[0].num_blocks = 60;
  StepDriver driver(tight);
  Sequence& unread = driver.add({.prompt = text(150, 1), .max_new_tokens = 50});
  driver.add({.prompt = text(9, 2), .max_new_tokens = 300 - 80});
  for (int i = 0; i < 5; ++i) driver.step();
  const Sequence& next = driver.add({.prompt = text(120, 3), .max_new_tokens = 2});
  driver.step();
  EXPECT_LT(next.slot, 0);
  driver.scheduler().set_gives_way(unread, true);
  EXPECT_LE(steps_to_end(driver, next), 15);
  EXPECT_FALSE(unread.ended);
  driver.run();
}

}  // namespace
}  // namespace fathom::sched
