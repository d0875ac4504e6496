#include "runner/sim/sim_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/failpoint.h"

namespace fathom::runner {
namespace {

using core::Batch;
using core::Outputs;

constexpr int kSimVocabSize = 1000;

int32_t expected(const std::vector<int32_t>& tokens, uint64_t seed = 0) {
  return SimRunner::expected_next(tokens, {.vocab_size = kSimVocabSize, .seed = seed});
}

// A request in slot 0 over blocks 3, 1, 2 of four tokens each.
Batch admit(const std::vector<int32_t>& prompt, const core::SamplingParams& sampling) {
  Batch batch;
  batch.admissions.push_back(
      {.slot = 0, .prompt = prompt, .sampling = sampling, .stop_token_ids = {}, .seed = 42});
  batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {3, 1, 2}});
  return batch;
}

SimRunner make_runner() {
  return SimRunner(
      {.vocab_size = kSimVocabSize, .num_blocks = 5, .block_tokens = 4, .max_slots = 2});
}

core::SamplingParams greedy() {
  core::SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST(SimRunner, continues_from_its_own_tokens_two_steps_ahead) {
  SimRunner runner = make_runner();
  std::vector<int32_t> tokens = {5, 6, 7, 8, 9};
  Batch batch = admit(tokens, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 5, .tokens = tokens});
  runner.submit(batch);
  for (int64_t step = 1; step < 6; ++step) {
    Batch decode{.step_id = step};
    decode.slices.push_back({.slot = 0});
    runner.submit(decode);
    EXPECT_EQ(runner.in_flight(), 2);
    const core::StepResult result = runner.wait();
    EXPECT_EQ(result.step_id, step - 1);
    ASSERT_EQ(result.slices.size(), 1u);
    ASSERT_EQ(result.slices[0].tokens.size(), 1u);
    EXPECT_EQ(result.slices[0].tokens[0].token, expected(tokens));
    tokens.push_back(result.slices[0].tokens[0].token);
  }
}

TEST(SimRunner, gives_the_same_token_for_every_chunking) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (int chunk = 1; chunk <= 9; ++chunk) {
    SimRunner runner = make_runner();
    int32_t token = -1;
    for (int begin = 0, step = 0; begin < 9; begin += chunk, ++step) {
      const int end = std::min(9, begin + chunk);
      Batch batch = step == 0 ? admit(prompt, greedy()) : Batch{};
      batch.step_id = step;
      batch.slices.push_back({.slot = 0,
                              .num_tokens = end - begin,
                              .tokens = {prompt.begin() + begin, prompt.begin() + end},
                              .outputs = end == 9 ? Outputs::kLast : Outputs::kNone});
      runner.submit(batch);
      const core::StepResult result = runner.wait();
      if (end == 9) token = result.slices[0].tokens.at(0).token;
    }
    EXPECT_EQ(token, expected(prompt)) << "chunks of " << chunk;
  }
}

TEST(SimRunner, verifies_a_tree_as_its_paths) {
  SimRunner runner = make_runner();
  const std::vector<int32_t> prompt = {5, 6, 7};
  Batch batch = admit(prompt, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = prompt, .outputs = Outputs::kNone});
  runner.submit(batch);
  runner.wait();
  // 10 -> {11 -> 13, 12}
  Batch tree{.step_id = 1};
  tree.slices.push_back({.slot = 0,
                         .num_tokens = 4,
                         .tokens = {10, 11, 12, 13},
                         .tree_mask = {0b0001, 0b0011, 0b0101, 0b1011},
                         .relative_positions = {0, 1, 1, 2},
                         .outputs = Outputs::kAll});
  runner.submit(tree);
  const core::StepResult result = runner.wait();
  ASSERT_EQ(result.slices[0].tokens.size(), 4u);
  EXPECT_EQ(result.slices[0].tokens[0].token, expected({5, 6, 7, 10}));
  EXPECT_EQ(result.slices[0].tokens[1].token, expected({5, 6, 7, 10, 11}));
  EXPECT_EQ(result.slices[0].tokens[2].token, expected({5, 6, 7, 10, 12}));
  EXPECT_EQ(result.slices[0].tokens[3].token, expected({5, 6, 7, 10, 11, 13}));
}

TEST(SimRunner, mixes_the_seed_into_sampled_requests_only) {
  const std::vector<int32_t> prompt = {5, 6, 7};
  for (const bool sampled : {false, true}) {
    SimRunner runner = make_runner();
    core::SamplingParams params = greedy();
    params.temperature = sampled ? 0.5f : 0.0f;
    params.return_prompt_logprobs = true;
    params.num_top_logprobs = 2;
    Batch batch = admit(prompt, params);
    batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = prompt});
    runner.submit(batch);
    const core::SliceResult slice = runner.wait().slices[0];
    EXPECT_EQ(slice.tokens[0].token, expected(prompt, sampled ? 42 : 0));
    EXPECT_EQ(slice.tokens[0].top_logprobs.size(), 2u);
    ASSERT_EQ(slice.prompt_logprobs.size(), 2u);
    EXPECT_EQ(slice.prompt_logprobs[1].token, 7);
  }
}

TEST(SimRunner, sees_a_block_that_another_sequence_wrote) {
  SimRunner runner = make_runner();
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9};
  Batch batch = admit(prompt, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 5, .tokens = prompt});
  batch.admissions.push_back(
      {.slot = 1, .prompt = {1}, .sampling = greedy(), .stop_token_ids = {}});
  batch.block_appends.push_back({.slot = 1, .kv_group = 0, .block_ids = {1}});
  EXPECT_DEATH(runner.submit(batch), "block 1 is given to slot 1, slot 0 has it");
}

TEST(SimRunner, refuses_a_block_that_a_step_in_flight_may_still_write) {
  SimRunner runner = make_runner();
  Batch first = admit({5}, greedy());
  first.slices.push_back({.slot = 0, .num_tokens = 1, .tokens = {5}});
  first.releases = {0};
  runner.submit(first);
  Batch second{.step_id = 1};
  second.admissions.push_back(
      {.slot = 1, .prompt = {1}, .sampling = greedy(), .stop_token_ids = {}});
  second.block_appends.push_back({.slot = 1, .kv_group = 0, .block_ids = {3}});
  EXPECT_DEATH(runner.submit(second), "step 0 may still write it");
  runner.wait();
  runner.submit(second);
}

// Blocks of four tokens, two slots and more: what a radix tree does with them.
class SharedPrefix : public ::testing::Test {
 protected:
  static core::SlotAdmission admission(int32_t slot, const std::vector<int32_t>& prompt,
                                       int32_t num_cached) {
    return {.slot = slot,
            .num_cached_tokens = num_cached,
            .prompt = prompt,
            .sampling = greedy(),
            .stop_token_ids = {}};
  }
  static core::SequenceSlice rest_of(int32_t slot, const std::vector<int32_t>& prompt,
                                     int32_t begin) {
    return {.slot = slot,
            .num_tokens = static_cast<int32_t>(prompt.size()) - begin,
            .tokens = {prompt.begin() + begin, prompt.end()}};
  }
  // Slot `slot` computes the prompt from num_cached on, in these blocks.
  Batch start(int32_t slot, const std::vector<int32_t>& prompt, int32_t num_cached,
              const std::vector<int32_t>& blocks) {
    Batch batch{.step_id = runner_.next_step_id()};
    batch.admissions.push_back(admission(slot, prompt, num_cached));
    batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = blocks});
    batch.slices.push_back(rest_of(slot, prompt, num_cached));
    return batch;
  }
  Batch release(int32_t slot) { return {.step_id = runner_.next_step_id(), .releases = {slot}}; }
  int32_t run(const Batch& batch) {
    runner_.submit(batch);
    const core::StepResult result = runner_.wait();
    return result.slices.empty() ? -1 : result.slices[0].tokens.at(0).token;
  }

  SimRunner runner_{
      {.vocab_size = kSimVocabSize, .num_blocks = 8, .block_tokens = 4, .max_slots = 3}};
  const std::vector<int32_t> first_ = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<int32_t> second_ = {1, 2, 3, 4, 5, 6, 7, 8, 70, 71};
};

TEST_F(SharedPrefix, several_slots_read_it_while_and_after_its_writer_runs) {
  EXPECT_EQ(run(start(0, first_, 0, {3, 1, 2})), expected(first_));
  EXPECT_EQ(run(start(1, second_, 8, {3, 1, 5})), expected(second_));
  Batch both{.step_id = runner_.next_step_id(), .releases = {0}};
  both.slices = {{.slot = 0}, {.slot = 1}};
  run(both);
  EXPECT_EQ(run(start(2, second_, 4, {3, 6, 7})), expected(second_));
  run(release(1));
  run(release(2));
  // Everybody has left: the blocks may be written again.
  EXPECT_EQ(run(start(0, second_, 0, {1, 3, 2})), expected(second_));
}

TEST_F(SharedPrefix, may_come_from_a_step_in_flight) {
  runner_.submit(start(0, first_, 0, {3, 1, 2}));
  runner_.submit(start(1, second_, 8, {3, 1, 5}));
  EXPECT_EQ(runner_.wait().slices[0].tokens[0].token, expected(first_));
  EXPECT_EQ(runner_.wait().slices[0].tokens[0].token, expected(second_));
}

TEST_F(SharedPrefix, aborts_while_its_writer_has_not_filled_it) {
  run(start(0, first_, 0, {3, 1, 2}));
  const std::vector<int32_t> longer = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  EXPECT_DEATH(runner_.submit(start(1, longer, 12, {3, 1, 2, 4})), "slot 0 still writes it");
  Batch same_step = start(1, first_, 0, {4, 5, 6});
  const Batch reader = start(2, second_, 8, {4, 5, 7});
  same_step.admissions.push_back(reader.admissions[0]);
  same_step.block_appends.push_back(reader.block_appends[0]);
  same_step.slices.push_back(reader.slices[0]);
  EXPECT_DEATH(runner_.submit(same_step), "block 4 is shared with slot 2, slot 1 still writes it");
}

TEST_F(SharedPrefix, aborts_when_its_rows_are_others) {
  run(start(0, first_, 0, {3, 1, 2}));
  run(release(0));
  runner_.submit(start(1, second_, 8, {1, 3, 5}));
  EXPECT_DEATH(runner_.wait(), "cached row 0 of slot 1 holds token 5 at position 4, not 1");
}

TEST_F(SharedPrefix, aborts_when_it_is_no_whole_block) {
  run(start(0, first_, 0, {3, 1, 2}));
  EXPECT_DEATH(runner_.submit(start(1, second_, 6, {3, 1, 5})), "6 cached tokens, blocks hold 4");
}

TEST_F(SharedPrefix, is_not_given_to_a_writer_while_a_slot_reads_it) {
  run(start(0, first_, 0, {3, 1, 2}));
  run(start(1, second_, 8, {3, 1, 5}));
  run(release(0));
  EXPECT_DEATH(runner_.submit(start(2, {9}, 0, {3})),
               "block 3 is given to slot 2, 1 slots read it");
  EXPECT_DEATH(runner_.submit(start(2, second_, 4, {3, 1, 6})),
               "block 1 is given to slot 2, 1 slots read it");
  run(start(2, {9}, 0, {2}));  // nobody shares it
}

TEST_F(SharedPrefix, is_not_given_to_a_writer_while_a_step_in_flight_reads_it) {
  run(start(0, first_, 0, {3, 1, 2}));
  run(release(0));
  Batch last = start(1, second_, 8, {3, 1, 5});
  last.releases = {1};
  runner_.submit(last);
  const Batch writer = start(2, {9}, 0, {3});
  EXPECT_DEATH(runner_.submit(writer), "block 3 is given to slot 2, step 2 may still read it");
  runner_.wait();
  EXPECT_EQ(run(writer), expected({9}));
}

TEST_F(SharedPrefix, is_not_taken_twice_by_one_slot) {
  run(start(0, first_, 0, {3, 1, 2}));
  run(release(0));
  EXPECT_DEATH(runner_.submit(start(1, second_, 8, {3, 1, 3})),
               "block 3 is given to slot 1, 1 slots read it");
}

// The mask that allows these tokens only.
std::vector<uint64_t> mask_allowing(const std::vector<int32_t>& allowed) {
  std::vector<uint64_t> words((kSimVocabSize + 63) / 64, 0);
  for (const int32_t token : allowed)
    words[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  return words;
}

TEST(SimRunner, moves_a_masked_token_to_the_next_allowed_one) {
  const std::vector<int32_t> prompt = {5, 6, 7};
  const int32_t free_choice = expected(prompt);
  const int32_t above = (free_choice + 10) % kSimVocabSize, below = free_choice - 1;
  ASSERT_GT(free_choice, 0);
  for (const auto& [allowed, want] : std::vector<std::pair<std::vector<int32_t>, int32_t>>{
           {{above, below, free_choice}, free_choice}, {{above, below}, above}, {{below}, below}}) {
    SimRunner runner = SimRunner({.vocab_size = kSimVocabSize, .num_blocks = 5, .block_tokens = 4});
    Batch batch = admit(prompt, greedy());
    batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = prompt, .wants_mask = true});
    runner.submit(batch);
    const std::vector<uint64_t> mask = mask_allowing(allowed);
    EXPECT_EQ(SimRunner::expected_next(prompt, {.vocab_size = kSimVocabSize, .mask = mask}), want);
    runner.set_masks({.step_id = 0, .masks = {{.slice_idx = 0, .words = mask}}});
    EXPECT_EQ(runner.wait().slices[0].tokens.at(0).token, want);
  }
}

TEST(SimRunner, fails_a_slice_whose_mask_leaves_no_token_and_goes_on) {
  SimRunner runner({.vocab_size = kSimVocabSize, .num_blocks = 5, .block_tokens = 4});
  Batch batch = admit({5, 6, 7}, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = {5, 6, 7}, .wants_mask = true});
  runner.submit(batch);
  Batch decode{.step_id = 1};
  decode.slices.push_back({.slot = 0});
  runner.submit(decode);
  runner.set_masks({.step_id = 0, .masks = {{.slice_idx = 0, .words = mask_allowing({})}}});
  const core::SliceResult failed = runner.wait().slices[0];
  EXPECT_TRUE(failed.tokens.empty());
  EXPECT_EQ(failed.error, "bans and mask leave no token to choose");
  EXPECT_EQ(runner.wait().slices[0].error, "");
}

TEST(SimRunner, waits_for_masks_from_another_thread) {
  SimRunner runner({.vocab_size = kSimVocabSize, .num_blocks = 5, .block_tokens = 4});
  Batch batch = admit({5, 6, 7}, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = {5, 6, 7}, .wants_mask = true});
  runner.submit(batch);
  std::thread grammar([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    runner.set_masks({.step_id = 0, .masks = {{.slice_idx = 0, .words = mask_allowing({123})}}});
  });
  EXPECT_EQ(runner.wait().slices[0].tokens.at(0).token, 123);
  grammar.join();
}

TEST(SimRunner, aborts_on_masks_that_are_not_those_wanted) {
  const auto submitted = [] {
    auto runner = std::make_unique<SimRunner>(
        SimConfig{.vocab_size = kSimVocabSize, .num_blocks = 5, .block_tokens = 4});
    Batch batch = admit({5, 6, 7}, greedy());
    batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = {5, 6, 7}, .wants_mask = true});
    runner->submit(batch);
    return runner;
  };
  const auto wait_with = [&](std::vector<core::SliceMask> masks) {
    const auto runner = submitted();
    runner->set_masks({.step_id = 0, .masks = std::move(masks)});
    runner->wait();
  };
  EXPECT_DEATH(wait_with({}), "slice 0 of step 0 got no mask");
  EXPECT_DEATH(wait_with({{.slice_idx = 1, .words = mask_allowing({1})}}),
               "a mask for slice 1 of step 0");
  EXPECT_DEATH(wait_with({{.slice_idx = 0, .words = {1, 2}}}), "has 2 words, 1 rows of 16 wanted");
  EXPECT_DEATH(
      {
        const auto runner = submitted();
        runner->set_masks({.step_id = 0});
        runner->set_masks({.step_id = 0});
      },
      "the masks of step 0 came twice");
}

TEST(SimRunner, aborts_when_a_row_has_no_block) {
  SimRunner runner = make_runner();
  std::vector<int32_t> prompt(13, 5);
  Batch batch = admit(prompt, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 13, .tokens = prompt});
  runner.submit(batch);
  EXPECT_DEATH(runner.wait(), "row 12 of slot 0, which has 3 blocks");
}

TEST(SimRunner, fails_one_slice_at_the_failpoint) {
  SimRunner runner = make_runner();
  Batch batch = admit({5}, greedy());
  batch.slices.push_back({.slot = 0, .num_tokens = 1, .tokens = {5}});
  arm_failpoint("sim_runner.slice", 1);
  runner.submit(batch);
  const core::StepResult result = runner.wait();
  disarm_failpoints();
  EXPECT_TRUE(result.slices[0].tokens.empty());
  EXPECT_NE(result.slices[0].error, "");
}

TEST(SimRunner, takes_its_delay_per_step_and_overlaps_it_with_the_caller) {
  const auto runner_with = [](std::chrono::milliseconds delay) {
    return SimRunner({.num_blocks = 5, .block_tokens = 4, .max_slots = 2, .step_delay = delay});
  };
  Stopwatch watch;
  SimRunner runner = runner_with(std::chrono::milliseconds(20));
  runner.submit(Batch{.step_id = 0});
  runner.submit(Batch{.step_id = 1});
  runner.wait();
  runner.wait();
  EXPECT_GE(watch.seconds(), 0.040);
  // So long that no busy machine makes up for it: submit() does not wait.
  watch.restart();
  SimRunner slow = runner_with(std::chrono::minutes(10));
  slow.submit(Batch{.step_id = 0});
  slow.submit(Batch{.step_id = 1});
  EXPECT_LT(watch.seconds(), 300);
}

}  // namespace
}  // namespace fathom::runner
