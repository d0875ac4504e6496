// Blocks, the prefix cache and retraction.

#include "sched/scheduler.h"

#include "base/failpoint.h"
#include "tests/sched/step_driver.h"

namespace fathom::sched {
namespace {

using testing::StepDriver;
using testing::text;

constexpr int kSmallBlock = 4;

SchedulerConfig pool_config(int num_blocks, bool radix_cache = true) {
  return {.num_slots = 8,
          .max_batch_tokens = 64,
          .kv_groups = {{.num_blocks = num_blocks, .block_tokens = kSmallBlock}},
          .chunked_prefill_size = 64,
          .max_running_requests = 8,
          .radix_cache = radix_cache};
}

TEST(PrefixCache, hits_whole_blocks_and_recomputes_at_least_one_token) {
  for (const int length : {1, 3, 4, 5, 7, 8, 9, 16}) {
    StepDriver driver(pool_config(64));
    driver.add({.prompt = text(length, 1), .max_new_tokens = 1});
    driver.run();
    const Sequence& again = driver.add({.prompt = text(length, 1), .max_new_tokens = 1});
    driver.step();
    EXPECT_EQ(again.num_cached_tokens, (length - 1) / kSmallBlock * kSmallBlock) << length;
    EXPECT_EQ(driver.tokens_of(again), length - again.num_cached_tokens) << length;
    driver.run();
  }
}

TEST(PrefixCache, tells_the_runner_how_much_is_cached_and_gives_it_the_shared_blocks_first) {
  StepDriver driver(pool_config(64));
  driver.add({.prompt = text(9, 1), .max_new_tokens = 1});
  const std::vector<int32_t> first_blocks = driver.step().batch.block_appends.at(0).block_ids;
  driver.run();
  driver.add({.prompt = text(9, 1), .max_new_tokens = 2});
  const core::Batch& batch = driver.step().batch;
  EXPECT_EQ(batch.admissions.at(0).num_cached_tokens, 8);
  EXPECT_EQ(batch.admissions.at(0).prompt.size(), 9u);
  ASSERT_EQ(batch.block_appends.size(), 2u);
  EXPECT_EQ(batch.block_appends[0].block_ids,
            std::vector<int32_t>(first_blocks.begin(), first_blocks.begin() + 2));
  EXPECT_EQ(batch.block_appends[1].block_ids.size(), 1u);
  driver.run();
}

TEST(PrefixCache, shares_blocks_of_a_prompt_that_is_still_being_computed) {
  SchedulerConfig chunks = pool_config(64);
  chunks.chunked_prefill_size = 6;
  StepDriver driver(chunks);
  driver.add({.prompt = text(30, 1), .max_new_tokens = 1});
  driver.step();
  EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 1);  // 6 rows computed, one whole block
  driver.step();
  EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 3);
  driver.run();
}

TEST(PrefixCache, keeps_what_a_request_generated_once_it_has_ended) {
  StepDriver driver(pool_config(64));
  const Sequence& first = driver.add({.prompt = text(6, 1), .max_new_tokens = 7});
  driver.run();
  EXPECT_EQ(first.num_known_tokens(), 13);
  // The row of the last token was never computed.
  EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 3);
  std::vector<int32_t> prompt = first.tokens;
  prompt.push_back(77);
  const Sequence& next = driver.add({.prompt = prompt, .max_new_tokens = 1});
  driver.run();
  EXPECT_EQ(next.num_cached_tokens, 12);
}

TEST(PrefixCache, forgets_what_nobody_uses_when_a_request_fails) {
  StepDriver driver(pool_config(64));
  Sequence& failing = driver.add({.prompt = text(9, 1)});
  driver.step();
  EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 2);
  driver.end(failing, Scheduler::Rows::kInvalid);
  EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 0);
  driver.run();
}

TEST(PrefixCache, keeps_salts_apart_and_can_be_cleared_or_off) {
  StepDriver driver(pool_config(64));
  driver.add({.prompt = text(9, 1), .max_new_tokens = 1, .salt = "a"});
  driver.run();
  const Sequence& other = driver.add({.prompt = text(9, 1), .max_new_tokens = 1, .salt = "b"});
  driver.run();
  EXPECT_EQ(other.num_cached_tokens, 0);
  driver.scheduler().clear_cache();
  EXPECT_EQ(driver.scheduler().kv_usage().num_free, 64);
  const Sequence& cleared = driver.add({.prompt = text(9, 1), .max_new_tokens = 1, .salt = "a"});
  driver.run();
  EXPECT_EQ(cleared.num_cached_tokens, 0);

  StepDriver without(pool_config(64, /*radix_cache=*/false));
  for (int i = 0; i < 2; ++i) {
    const Sequence& sequence = without.add({.prompt = text(9, 1)});
    without.run();
    EXPECT_EQ(sequence.num_cached_tokens, 0);
  }
  EXPECT_EQ(without.scheduler().stats().num_cached_tokens, 0);
  EXPECT_EQ(without.scheduler().kv_usage().num_free, 64);
}

TEST(PrefixCache, evicts_what_nobody_uses_to_admit_a_request) {
  StepDriver driver(pool_config(8));
  driver.add({.prompt = text(24, 1), .max_new_tokens = 1});
  driver.run();
  EXPECT_EQ(driver.scheduler().kv_usage().num_evictable, 6);
  const Sequence& large = driver.add({.prompt = text(30, 2), .max_new_tokens = 1});
  driver.step();
  EXPECT_GE(large.num_cached_tokens, 0) << "not admitted at once";
  EXPECT_EQ(driver.scheduler().stats().num_evicted_blocks, 6);
  driver.run();
}

TEST(Retraction, takes_the_lowest_priority_and_of_these_the_youngest) {
  StepDriver driver(pool_config(12));
  Sequence& low = driver.add({.prompt = text(5, 1), .max_new_tokens = 30, .priority = -1});
  Sequence& old = driver.add({.prompt = text(5, 2), .max_new_tokens = 30});
  Sequence& young = driver.add({.prompt = text(5, 3), .max_new_tokens = 30});
  while (low.num_retractions == 0) driver.step();
  EXPECT_EQ(young.num_retractions, 0);
  while (young.num_retractions == 0) driver.step();
  EXPECT_EQ(old.num_retractions, 0);
  driver.run();
  EXPECT_EQ(old.num_retractions, 0);
}

TEST(Retraction, counts_cached_tokens_once_and_continues_from_what_was_computed) {
  StepDriver driver(pool_config(64));
  Sequence& first = driver.add({.prompt = text(5, 1), .max_new_tokens = 20});
  Sequence& second = driver.add({.prompt = text(5, 2), .max_new_tokens = 20});
  for (int i = 0; i < 8; ++i) driver.step();
  arm_failpoint("scheduler.retract", 1);
  driver.step();
  EXPECT_EQ(first.num_retractions, 0);
  EXPECT_EQ(second.num_retractions, 1);
  EXPECT_LT(second.slot, 0);
  const int64_t num_prefill_tokens = driver.scheduler().stats().num_prefill_tokens;
  driver.step();
  EXPECT_GE(second.slot, 0) << "retracted requests go first";
  // 12 rows were computed, three whole blocks; the prompt was 5 tokens and 8 came out.
  EXPECT_EQ(driver.scheduler().stats().num_prefill_tokens - num_prefill_tokens, 13 - 12);
  EXPECT_EQ(second.num_cached_tokens, 0);
  EXPECT_EQ(driver.scheduler().stats().num_cached_tokens, 0);
  driver.run();
}

TEST(Retraction, never_takes_the_only_running_request) {
  StepDriver driver(pool_config(64));
  const Sequence& only = driver.add({.prompt = text(5, 1), .max_new_tokens = 20});
  for (int i = 0; i < 10; ++i) {
    arm_failpoint("scheduler.retract", 1);
    driver.step();
  }
  disarm_failpoints();
  EXPECT_EQ(only.num_retractions, 0);
  driver.run();
}

TEST(Retraction, every_step_of_a_crowded_pool_makes_progress) {
  for (const bool radix_cache : {false, true}) {
    StepDriver driver(pool_config(10, radix_cache));
    for (int i = 0; i < 20; ++i)
      driver.add({.prompt = text(3 + i % 6, 1 + i), .max_new_tokens = 30});
    int64_t num_idle = 0;
    while (driver.scheduler().has_work())
      num_idle = driver.step().slices.empty() ? num_idle + 1 : 0;
    EXPECT_LE(num_idle, 1);  // the last release
    const int64_t num_retractions = driver.scheduler().stats().num_retractions;
    EXPECT_GT(num_retractions, 0);
    EXPECT_LT(num_retractions, 100) << "twenty requests of 30 tokens each retract one another";
  }
}

SchedulerConfig speculating(int num_blocks, int num_drafts) {
  SchedulerConfig drafting = pool_config(num_blocks);
  drafting.num_drafts = num_drafts;
  drafting.kv_groups.push_back(
      {.num_blocks = num_blocks, .block_tokens = kSmallBlock, .lookahead_tokens = 1});
  return drafting;
}

TEST(Drafts, are_verified_one_step_after_they_were_asked_for) {
  StepDriver driver(speculating(64, 3));
  driver.accept(3);
  const Sequence& sequence = driver.add({.prompt = text(5, 1), .max_new_tokens = 10});
  // Of 14 rows 5 are the prompt's: a token, four, four, and the last one alone.
  const std::vector<int> num_tokens = {5, 4, 4, 1}, num_asked = {3, 3, 3, 0};
  for (size_t i = 0; i < num_tokens.size(); ++i) {
    const core::Batch& batch = driver.step().batch;
    ASSERT_EQ(batch.slices.size(), 1u);
    EXPECT_EQ(batch.slices[0].num_tokens, num_tokens[i]) << i;
    EXPECT_EQ(batch.slices[0].num_drafts_to_propose, num_asked[i]) << i;
    if (i == 0) {
      EXPECT_EQ(batch.admissions.at(0).max_rows, 14);
    }
  }
  EXPECT_TRUE(sequence.ended);
  driver.run();
}

TEST(Drafts, leave_prompts_half_of_the_step_and_every_decode_its_token) {
  SchedulerConfig narrow = speculating(64, 7);
  narrow.max_batch_tokens = 12;
  StepDriver driver(narrow);
  for (int i = 0; i < 2; ++i) driver.add({.prompt = text(3, 1 + i), .max_new_tokens = 60});
  driver.step();
  const auto num_query_tokens = [](const PlannedStep& step) {
    std::vector<int> counts;
    for (const core::SequenceSlice& slice : step.batch.slices) counts.push_back(slice.num_tokens);
    return counts;
  };
  EXPECT_EQ(num_query_tokens(driver.step()), (std::vector<int>{8, 4}));
  // Ten tokens are left besides the two decodes; the prompt wants all it can get.
  driver.add({.prompt = text(40, 3), .max_new_tokens = 1});
  EXPECT_EQ(num_query_tokens(driver.step()), (std::vector<int>{6, 1, 5}));
  driver.run();
}

TEST(Drafts, are_given_up_before_anybody_waits_or_is_retracted) {
  StepDriver driver(speculating(5, 3));
  const Sequence& first = driver.add({.prompt = text(7, 1), .max_new_tokens = 9});
  const Sequence& second = driver.add({.prompt = text(5, 2), .max_new_tokens = 4});
  // Nothing is accepted. The first one has three blocks, the second one two, and there are no others.
  for (int i = 0; i < 3; ++i) driver.step();
  EXPECT_EQ(driver.tokens_of(first), 4);
  // Its drafts would need a fourth block: rows 9 to 12.
  driver.step();
  EXPECT_EQ(driver.tokens_of(first), 1);
  EXPECT_TRUE(second.ended);
  driver.step();
  EXPECT_GT(driver.tokens_of(first), 0);
  EXPECT_EQ(driver.scheduler().stats().num_retractions, 0);
  driver.run();
}

TEST(Drafts, a_block_is_published_once_the_token_after_it_is_known) {
  for (const int num_drafts : {0, 3}) {
    StepDriver driver(speculating(64, num_drafts));
    driver.accept(2);
    Sequence& scored = driver.add({.prompt = text(8, 1), .max_new_tokens = 0});
    driver.step();
    EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 1);
    driver.end(scored);
    driver.add({.prompt = text(8, 2), .max_new_tokens = 2});
    driver.step();
    EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 1 + 2);
    driver.run();
    EXPECT_EQ(driver.scheduler().kv_usage().num_cached, 1 + 2);
  }
}

TEST(SchedulerDeathTest, refuses_a_prefix_cache_over_blocks_of_two_sizes) {
  SchedulerConfig mixed = pool_config(8);
  mixed.kv_groups.push_back({.num_blocks = 8, .block_tokens = 8});
  EXPECT_DEATH(Scheduler{mixed}, "a prefix cache over blocks of 8 and 4 tokens");
  mixed.radix_cache = false;
  const Scheduler without(mixed);
  EXPECT_EQ(without.check_integrity(), "");
}

}  // namespace
}  // namespace fathom::sched
