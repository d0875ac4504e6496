// ModelRunner on the demo model where steps wait for masks, batch by batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/runner/demo_runner.h"

namespace fathom::runner {
namespace {

using fathom::testing::fast_demo_model;
using fathom::testing::greedy;
using fathom::testing::load_golden;

// The mask that allows these tokens only.
std::vector<uint64_t> mask_of(const std::vector<int32_t>& allowed) {
  std::vector<uint64_t> words(
      (static_cast<size_t>(fast_demo_model().config().vocab_size) + 63) / 64, 0);
  for (const int32_t token : allowed)
    words[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  return words;
}

TEST_P(DemoRunner, follows_late_masks_and_leaves_the_others_alone) {
  const auto golden = load_golden();
  Batch batch = next_batch();
  for (const int32_t slot : {0, 1, 2}) {
    const auto& prompt = golden[slot == 1 ? 1 : 0].prompt_ids;
    admit(batch, slot, prompt, greedy(8));
    batch.slices.push_back({.slot = slot,
                            .num_tokens = static_cast<int>(prompt.size()),
                            .tokens = prompt,
                            .wants_mask = slot != 1});
  }
  runner_->submit(batch);
  // The step after it decodes from the masked tokens and is submitted before the masks are known.
  Batch decode = next_batch();
  decode.slices = {{.slot = 2}, {.slot = 1}, {.slot = 0, .wants_mask = true}};
  runner_->submit(decode);
  std::thread grammar([&] {
    runner_->set_masks(
        {.step_id = decode.step_id, .masks = {{.slice_idx = 2, .words = mask_of({77})}}});
    runner_->set_masks({.step_id = batch.step_id,
                        .masks = {{.slice_idx = 2, .words = mask_of({123, 124})},
                                  {.slice_idx = 0, .words = mask_of({55})}}});
  });
  const core::StepResult first = runner_->wait(), second = runner_->wait();
  grammar.join();
  EXPECT_EQ(first.slices.at(0).tokens.at(0).token, 55);
  EXPECT_EQ(first.slices.at(1).tokens.at(0).token, golden[1].greedy_ids.at(0));
  const int32_t chosen = first.slices.at(2).tokens.at(0).token;
  EXPECT_TRUE(chosen == 123 || chosen == 124) << chosen;
  EXPECT_EQ(second.slices.at(1).tokens.at(0).token, golden[1].greedy_ids.at(1));
  EXPECT_EQ(second.slices.at(2).tokens.at(0).token, 77);
}

TEST_P(DemoRunner, tells_what_part_of_its_time_a_step_waited_for_masks) {
  const std::vector<int32_t> prompt = load_golden()[0].prompt_ids;
  Batch batch = next_batch();
  admit(batch, 0, prompt, greedy(8));
  batch.slices.push_back({.slot = 0,
                          .num_tokens = static_cast<int>(prompt.size()),
                          .tokens = prompt,
                          .wants_mask = true});
  runner_->submit(batch);
  // Longer than the forward pass, also on a busy machine.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  runner_->set_masks(
      {.step_id = batch.step_id, .masks = {{.slice_idx = 0, .words = mask_of({55})}}});
  const core::StepResult masked = runner_->wait();
  const double computed = masked.forward_seconds + masked.sampling_seconds;
  EXPECT_GT(masked.mask_wait_seconds, (masked.wall_seconds - computed) / 2);
  EXPECT_LE(masked.mask_wait_seconds + computed, masked.wall_seconds);
  Batch decode = next_batch();
  decode.slices = {{.slot = 0}};
  runner_->submit(decode);
  EXPECT_EQ(runner_->wait().mask_wait_seconds, 0);
}

TEST_P(DemoRunner, masks_every_row_of_a_verification_and_no_prompt_logprob) {
  const auto golden = load_golden();
  const auto& prompt = golden[6].prompt_ids;
  core::SamplingParams params = greedy(8);
  params.return_prompt_logprobs = true;
  Batch batch = next_batch();
  admit(batch, 0, prompt, params);
  batch.slices.push_back({.slot = 0,
                          .num_tokens = static_cast<int>(prompt.size()),
                          .tokens = prompt,
                          .outputs = Outputs::kAll,
                          .wants_mask = true});
  std::vector<uint64_t> words;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const std::vector<uint64_t> row = mask_of({static_cast<int32_t>(200 + i)});
    words.insert(words.end(), row.begin(), row.end());
  }
  runner_->submit(batch);
  runner_->set_masks({.step_id = batch.step_id, .masks = {{.slice_idx = 0, .words = words}}});
  const core::SliceResult slice = runner_->wait().slices.at(0);
  ASSERT_EQ(slice.tokens.size(), prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i)
    EXPECT_EQ(slice.tokens[i].token, static_cast<int32_t>(200 + i));
  ASSERT_EQ(slice.prompt_logprobs.size(), prompt.size() - 1);
  EXPECT_EQ(slice.prompt_logprobs[0].token, prompt[1]);
}

TEST_P(DemoRunner, fails_only_the_slice_whose_mask_leaves_no_token) {
  const auto golden = load_golden();
  Batch batch = next_batch();
  for (const int32_t slot : {0, 1}) {
    const auto& prompt = golden[static_cast<size_t>(slot)].prompt_ids;
    admit(batch, slot, prompt, greedy(8));
    batch.slices.push_back({.slot = slot,
                            .num_tokens = static_cast<int>(prompt.size()),
                            .tokens = prompt,
                            .wants_mask = slot == 0});
  }
  runner_->submit(batch);
  runner_->set_masks({.step_id = batch.step_id, .masks = {{.slice_idx = 0, .words = mask_of({})}}});
  const core::StepResult result = runner_->wait();
  EXPECT_THAT(result.slices.at(0).error, ::testing::HasSubstr("grammar"));
  EXPECT_EQ(result.slices.at(1).tokens.at(0).token, golden[1].greedy_ids.at(0));
}

TEST(ModelRunner, is_destroyed_while_a_step_waits_for_masks) {
  const auto golden = load_golden();
  const auto& prompt = golden[0].prompt_ids;
  auto runner =
      ModelRunner::create(fast_demo_model(), {.max_slots = 1,
                                              .max_batch_tokens = 64,
                                              .context_length = 64,
                                              .num_threads = fathom::testing::kNumThreads});
  Batch batch{.step_id = 0};
  batch.admissions.push_back({.slot = 0, .prompt = prompt, .sampling = greedy(64)});
  batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {0}});
  batch.slices.push_back({.slot = 0,
                          .num_tokens = static_cast<int>(prompt.size()),
                          .tokens = prompt,
                          .wants_mask = true});
  runner->submit(batch);
  Batch decode{.step_id = 1};
  decode.slices.push_back({.slot = 0, .wants_mask = true});
  runner->submit(decode);
  runner.reset();  // ends
}

}  // namespace
}  // namespace fathom::runner
