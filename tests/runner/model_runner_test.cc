// ModelRunner on the demo model, batch by batch; with masks: model_runner_masks_test.cc. Through the engine:
// tests/engine/demo_model_test.cc.

#include "runner/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "tests/runner/demo_runner.h"

namespace fathom::runner {
namespace {

using core::Outputs;
using fathom::testing::demo_model;
using fathom::testing::fast_demo_model;
using fathom::testing::greedy;
using fathom::testing::load_golden;

INSTANTIATE_TEST_SUITE_P(graphs, DemoRunner,
                         ::testing::Values(GraphCase{"none", {}},
                                           GraphCase{"each_size", {1, 2, 3, 4}},
                                           GraphCase{"padded", {4}},
                                           GraphCase{"renewed", {2, 4}, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DemoRunner, follows_the_golden_tokens_two_steps_ahead) {
  const auto golden = load_golden();
  const auto& prompt = golden[0].prompt_ids;
  Batch batch = next_batch();
  admit(batch, 1, prompt, greedy(64));
  batch.slices.push_back(
      {.slot = 1, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  runner_->submit(batch);
  for (size_t i = 0; i < golden[0].greedy_ids.size(); ++i) {
    Batch decode = next_batch();
    decode.slices.push_back({.slot = 1});
    runner_->submit(decode);
    EXPECT_EQ(runner_->in_flight(), 2);
    const core::StepResult result = runner_->wait();
    EXPECT_EQ(result.slices.at(0).slot, 1);
    EXPECT_EQ(result.slices.at(0).tokens.at(0).token, golden[0].greedy_ids[i]) << "token " << i;
  }
  runner_->wait();
}

// A verification slice names the tokens itself; each query token must predict what a decode predicts there.
TEST_P(DemoRunner, verifies_several_tokens_as_sequential_decodes_would) {
  const auto golden = load_golden();
  const auto& prompt = golden[6].prompt_ids;
  const auto& tokens = golden[6].greedy_ids;
  ASSERT_GE(tokens.size(), 8u);
  Batch batch = next_batch();
  admit(batch, 0, prompt, greedy(64));
  batch.slices.push_back(
      {.slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  run(batch);
  Batch verify = next_batch();
  verify.slices.push_back({.slot = 0,
                           .num_tokens = 7,
                           .tokens = {tokens.begin(), tokens.begin() + 7},
                           .outputs = Outputs::kAll});
  const core::StepResult result = run(verify);
  ASSERT_EQ(result.slices.at(0).tokens.size(), 7u);
  for (size_t i = 0; i < 7; ++i)
    EXPECT_EQ(result.slices[0].tokens[i].token, tokens[i + 1]) << "token " << i;
  Batch again = next_batch();
  admit(again, 1, prompt, greedy(64));
  again.slices.push_back(
      {.slot = 1, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  run(again);
  for (size_t i = 0; i < 7; ++i) {
    Batch one = next_batch();
    one.slices.push_back({.slot = 1});
    // The same bits, not only the same token.
    EXPECT_EQ(run(one).slices.at(0).tokens.at(0).logprob, result.slices[0].tokens[i].logprob)
        << "token " << i;
  }
  Batch decode = next_batch();
  decode.slices.push_back({.slot = 0});
  EXPECT_EQ(run(decode).slices.at(0).tokens.at(0).token, tokens.at(8));
}

TEST_P(DemoRunner, verifies_a_tree_as_its_paths_and_a_stranger_beside_it) {
  const auto golden = load_golden();
  const auto& prompt = golden[6].prompt_ids;
  const auto& tokens = golden[6].greedy_ids;
  const auto& stranger = golden[3].prompt_ids;
  core::SamplingParams params = greedy(64);
  params.num_top_logprobs = 3;

  // The wrong branch, alone and causal.
  const int32_t wrong = tokens[1] == 7 ? 8 : 7;
  Batch alone = next_batch();
  admit(alone, 2, prompt, params);
  std::vector<int32_t> path = prompt;
  path.insert(path.end(), {tokens[0], wrong, tokens[2]});
  alone.slices.push_back({.slot = 2, .num_tokens = static_cast<int>(path.size()), .tokens = path});
  const core::SampledToken expected = run(alone).slices.at(0).tokens.at(0);

  Batch batch = next_batch();
  admit(batch, 0, prompt, params);
  batch.slices.push_back(
      {.slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  run(batch);
  // 0: t0 -> {1: t1 -> 3: t2, 2: wrong -> 4: t2}, beside the prefill of a causal slice.
  Batch tree = next_batch();
  tree.slices.push_back({.slot = 0,
                         .num_tokens = 5,
                         .tokens = {tokens[0], tokens[1], wrong, tokens[2], tokens[2]},
                         .tree_mask = {0b00001, 0b00011, 0b00101, 0b01011, 0b10101},
                         .relative_positions = {0, 1, 1, 2, 2},
                         .outputs = Outputs::kAll});
  admit(tree, 1, stranger, greedy(64));
  tree.slices.push_back(
      {.slot = 1, .num_tokens = static_cast<int>(stranger.size()), .tokens = stranger});
  const core::StepResult result = run(tree);
  const auto& out = result.slices.at(0).tokens;
  ASSERT_EQ(out.size(), 5u);
  EXPECT_EQ(out[0].token, tokens[1]);
  EXPECT_EQ(out[1].token, tokens[2]);
  EXPECT_EQ(out[3].token, tokens[3]);
  EXPECT_EQ(out[4].token, expected.token);
  EXPECT_NEAR(out[4].logprob, expected.logprob, 1e-3);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(out[4].top_logprobs.at(i).second, expected.top_logprobs.at(i).second, 1e-3);
  EXPECT_EQ(result.slices.at(1).tokens.at(0).token, golden[3].greedy_ids.at(0));
}

TEST_P(DemoRunner, returns_the_golden_prompt_logprobs_for_any_chunks) {
  const auto golden = load_golden();
  core::SamplingParams params = greedy(1);
  params.return_prompt_logprobs = true;
  params.num_top_logprobs = 2;
  int32_t slot = 0;
  for (const int chunk : {3, 64}) {
    const auto& prompt = golden[1].prompt_ids;
    std::vector<core::SampledToken> got;
    Batch batch = next_batch();
    admit(batch, slot, prompt, params);
    for (int begin = 0; begin < static_cast<int>(prompt.size()); begin += chunk) {
      const int end = std::min(begin + chunk, static_cast<int>(prompt.size()));
      batch.slices.push_back({.slot = slot,
                              .num_tokens = end - begin,
                              .tokens = {prompt.begin() + begin, prompt.begin() + end}});
      const core::StepResult result = run(batch);
      const auto& logprobs = result.slices.at(0).prompt_logprobs;
      got.insert(got.end(), logprobs.begin(), logprobs.end());
      batch = next_batch();
    }
    ASSERT_EQ(got.size(), golden[1].prompt_logprobs.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].token, prompt[i + 1]);
      EXPECT_NEAR(got[i].logprob, golden[1].prompt_logprobs[i], 1e-3) << "prompt token " << i + 1;
      EXPECT_EQ(got[i].top_logprobs.size(), 2u);
      EXPECT_GE(got[i].top_logprobs[0].second + 1e-6f, got[i].logprob);
    }
    ++slot;
  }
}

TEST_P(DemoRunner, fails_only_the_slice_whose_logits_are_not_finite) {
  const auto golden = load_golden();
  Batch batch = next_batch();
  for (const int32_t slot : {0, 1}) {
    const auto& prompt = golden[static_cast<size_t>(slot)].prompt_ids;
    admit(batch, slot, prompt, greedy(8));
    batch.slices.push_back(
        {.slot = slot, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  }
  arm_failpoint("model_runner.logits", 1);
  const core::StepResult result = run(batch);
  // The layout puts absorbed sequences first, so the first row may be of either slice.
  const size_t failed = result.slices.at(0).error.empty() ? 1 : 0, fine = 1 - failed;
  EXPECT_THAT(result.slices.at(failed).error, ::testing::HasSubstr("not finite"));
  EXPECT_TRUE(result.slices.at(failed).tokens.empty());
  EXPECT_EQ(result.slices.at(fine).error, "");
  EXPECT_EQ(result.slices.at(fine).tokens.at(0).token, golden[fine].greedy_ids.at(0));
  // The step after it was planned without knowing: it must find valid ids.
  Batch decode = next_batch();
  decode.slices.push_back({.slot = 0});
  decode.slices.push_back({.slot = 1});
  const core::StepResult next = run(decode);
  EXPECT_EQ(next.slices.at(fine).tokens.at(0).token, golden[fine].greedy_ids.at(1));
}

TEST_P(DemoRunner, continues_a_retracted_sequence_with_its_counts_and_bans) {
  const auto golden = load_golden();
  const auto& prompt = golden[1].prompt_ids;
  core::SamplingParams params = greedy(12);
  params.frequency_penalty = 1.5f;
  params.repetition_penalty = 1.3f;
  const std::vector<int32_t> whole = generate(0, prompt, params);

  std::vector<int32_t> known = prompt;
  known.insert(known.end(), whole.begin(), whole.begin() + 5);
  Batch batch = next_batch();
  admit(batch, 1, known, params);
  batch.admissions.back().num_generated_tokens = 5;
  batch.slices.push_back(
      {.slot = 1, .num_tokens = static_cast<int>(known.size()), .tokens = known});
  std::vector<int32_t> rest = {run(batch).slices.at(0).tokens.at(0).token};
  while (rest.size() + 5 < whole.size()) {
    Batch decode = next_batch();
    decode.slices.push_back({.slot = 1});
    rest.push_back(run(decode).slices.at(0).tokens.at(0).token);
  }
  EXPECT_EQ(rest, std::vector<int32_t>(whole.begin() + 5, whole.end()));
}

TEST_P(DemoRunner, biases_and_penalises_what_it_was_asked_to) {
  const auto golden = load_golden();
  const auto& prompt = golden[0].prompt_ids;
  const int32_t usual = golden[0].greedy_ids[0];
  core::SamplingParams banned = greedy(1);
  banned.logit_bias = {{usual, -100.0f}};
  EXPECT_NE(generate(0, prompt, banned).at(0), usual);
  core::SamplingParams wanted = greedy(3);
  wanted.logit_bias = {{123, 100.0f}};
  EXPECT_EQ(generate(1, prompt, wanted), (std::vector<int32_t>{123, 123, 123}));
  core::SamplingParams once = wanted;  // each occurrence costs 2, more than twenty of them the bias
  once.logit_bias = {{123, 30.0f}};
  once.frequency_penalty = 2.0f;
  once.presence_penalty = 2.0f;
  once.max_new_tokens = 30;
  const std::vector<int32_t> tokens = generate(2, prompt, once);
  EXPECT_EQ(tokens.at(0), 123);
  EXPECT_LT(std::count(tokens.begin(), tokens.end(), 123), 30);
}

TEST_P(DemoRunner, tells_what_part_of_its_time_a_step_spent_in_layers_and_in_sampling) {
  const std::vector<int32_t> prompt = load_golden()[0].prompt_ids;
  Batch prefill = next_batch();
  admit(prefill, 0, prompt, greedy(8));
  prefill.slices.push_back(
      {.slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  Batch decode = {.step_id = prefill.step_id + 1};
  decode.slices = {{.slot = 0}};
  for (const Batch& batch : {prefill, decode}) {
    const Stopwatch watch;
    const core::StepResult result = run(batch);
    EXPECT_LT(result.wall_seconds, watch.seconds());
    EXPECT_GT(result.forward_seconds, 0);
    EXPECT_GT(result.sampling_seconds, 0);
    EXPECT_EQ(result.mask_wait_seconds, 0);
    // The rest is the inputs and the way of the results.
    EXPECT_LT(result.forward_seconds + result.sampling_seconds, result.wall_seconds);
  }
  const core::StepResult nothing = run(next_batch());
  EXPECT_EQ(nothing.forward_seconds, 0);
  EXPECT_EQ(nothing.sampling_seconds, 0);
  EXPECT_EQ(nothing.mask_wait_seconds, 0);
}

TEST_P(DemoRunner, counts_no_time_twice_of_steps_that_are_in_flight_together) {
  const std::vector<int32_t> prompt = load_golden()[0].prompt_ids;
  constexpr int kSteps = 20;
  const Stopwatch watch;
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    Batch batch = next_batch();
    if (step == 0) admit(batch, 0, prompt, greedy(kSteps));
    batch.slices.push_back({.slot = 0});
    if (step == 0)
      batch.slices[0] = {
          .slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt};
    runner_->submit(batch);
    if (step == 0) continue;
    const core::StepResult result = runner_->wait();
    EXPECT_GT(result.forward_seconds, 0) << "step " << step - 1;
    EXPECT_GT(result.sampling_seconds, 0) << "step " << step - 1;
    EXPECT_LE(result.forward_seconds + result.mask_wait_seconds + result.sampling_seconds,
              result.wall_seconds);
    sum += result.forward_seconds + result.sampling_seconds;
  }
  const core::StepResult last = runner_->wait();
  EXPECT_LE(sum + last.forward_seconds + last.sampling_seconds, watch.seconds());
}

// A prefix that another slot computed, at every edge of its blocks and up to all but one token.
TEST_P(DemoRunner, continues_from_blocks_that_another_slot_computed) {
  std::vector<int32_t> text;
  for (const auto& golden : load_golden()) {
    text.insert(text.end(), golden.prompt_ids.begin(), golden.prompt_ids.end());
    text.insert(text.end(), golden.greedy_ids.begin(), golden.greedy_ids.end());
  }
  ASSERT_GE(text.size(), 193u);
  for (const int length : {65, 128, 129, 193}) {
    const std::vector<int32_t> prompt(text.begin(), text.begin() + length);
    // Slot 0 computes it, in chunks that fit a step, and slot 1 takes its whole blocks.
    Batch batch = next_batch();
    admit(batch, 0, prompt, greedy(1));
    int32_t expected = -1;
    for (int begin = 0; begin < length; begin += 64) {
      const int end = std::min(begin + 64, length);
      batch.slices.push_back({.slot = 0,
                              .num_tokens = end - begin,
                              .tokens = {prompt.begin() + begin, prompt.begin() + end}});
      expected = run(batch).slices.at(0).tokens.at(0).token;
      batch = next_batch();
    }
    const int num_cached = (length - 1) / 64 * 64;
    admit(batch, 1, prompt, greedy(1));
    batch.admissions.back().num_cached_tokens = num_cached;
    for (int i = 0; i < num_cached / 64; ++i)
      batch.block_appends.back().block_ids[static_cast<size_t>(i)] = i;
    batch.slices.push_back({.slot = 1,
                            .num_tokens = length - num_cached,
                            .tokens = {prompt.begin() + num_cached, prompt.end()}});
    if (length - num_cached < 64) batch.slices.push_back({.slot = 0});  // the writer goes on
    EXPECT_EQ(run(batch).slices.at(0).tokens.at(0).token, expected) << length;
    Batch release = next_batch();
    release.releases = {0, 1};
    run(release);
    taken_slots_.clear();
  }
}

// Multiply-adds by hand, for the demo's 4 layers with 8 heads, the first layer dense.
TEST(ModelRunner, counts_the_work_of_a_slice_in_the_form_of_attention_that_it_takes) {
  const auto runner = ModelRunner::create(fast_demo_model(), small_config());
  constexpr double kHeads = 4 * 8, kKvB = 512 * (128 + 128);
  constexpr double kProjections = 128 * 128 + 128 * 8 * 192 + 128 * 576 + 8 * 128 * 128;
  constexpr double kLinear = 4 * kProjections + 3 * 128 * 512 + 3 * (3 * 128 * 128 * 5);
  EXPECT_EQ(runner->slice_work(1, 1000),
            (core::SliceWork{.linear = kLinear, .absorbed = kHeads * (kKvB + 1001 * 1088)}));
  EXPECT_EQ(
      runner->slice_work(65, 1000),
      (core::SliceWork{.linear = 65 * kLinear,
                       .expanded = kHeads * (1065 * kKvB + (65 * 1000 + 65 * 33) * (192 + 128))}));
}

TEST(ModelRunner, follows_the_golden_tokens_on_the_reference_backend) {
  const auto golden = load_golden();
  const auto& prompt = golden[0].prompt_ids;
  const auto runner = ModelRunner::create(
      demo_model(), {.max_slots = 1, .max_batch_tokens = 8, .context_length = 64});
  Batch batch{.step_id = 0};
  batch.admissions.push_back({.slot = 0, .prompt = prompt, .sampling = greedy(64)});
  batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {0}});
  batch.slices.push_back(
      {.slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  for (const int32_t token : golden[0].greedy_ids) {
    runner->submit(batch);
    EXPECT_EQ(runner->wait().slices.at(0).tokens.at(0).token, token);
    batch = {.step_id = runner->next_step_id()};
    batch.slices.push_back({.slot = 0});
  }
}

TEST(ModelRunnerDeathTest, aborts_on_a_slice_of_a_free_slot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto runner = ModelRunner::create(
            demo_model(), {.max_slots = 1, .max_batch_tokens = 1, .context_length = 64});
        Batch batch{.step_id = 0};
        batch.slices.push_back({.slot = 0});
        runner->submit(batch);
        runner->wait();
      },
      "slice of slot 0, which is free");
}

TEST(ModelRunnerDeathTest, aborts_on_verifying_tokens_with_penalties) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto runner = ModelRunner::create(
            demo_model(), {.max_slots = 1, .max_batch_tokens = 2, .context_length = 64});
        core::SamplingParams params = greedy(5);
        params.presence_penalty = 1;
        Batch batch{.step_id = 0};
        batch.admissions.push_back({.slot = 0, .prompt = {0, 5}, .sampling = params});
        batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {0}});
        batch.slices.push_back(
            {.slot = 0, .num_tokens = 2, .tokens = {0, 5}, .outputs = Outputs::kAll});
        runner->submit(batch);
        runner->wait();
      },
      "slot 0 has penalties and samples 2 tokens in one slice, at most 1");
}

}  // namespace
}  // namespace fathom::runner
