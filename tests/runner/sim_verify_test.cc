// Verify slices of the simulated runner: bounds, limits, masks and what aborts.

#include <gtest/gtest.h>

#include "runner/sim/sim_runner.h"

namespace fathom::runner {
namespace {

using core::Batch;
using core::Outputs;
using Tokens = std::vector<int32_t>;

constexpr int kVerifyVocabSize = 400;

int32_t expected_run(const Tokens& tokens) {
  return SimRunner::expected_next(tokens, {.vocab_size = kVerifyVocabSize});
}

class Verify : public ::testing::Test {
 protected:
  static SimConfig config(double agreement, int top_k = 1) {
    const DrafterInfo shape =
        top_k == 1 ? DrafterInfo{.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}
                   : DrafterInfo{.num_steps = 3, .top_k = top_k, .num_draft_tokens = 8};
    return {.vocab_size = kVerifyVocabSize,
            .num_blocks = 12,
            .block_tokens = 4,
            .max_slots = 3,
            .drafter = {.shape = shape, .agreement = agreement}};
  }
  // Slot 0 computes the prompt, in these blocks of both groups, and gets drafts.
  Batch start(SimRunner& runner, const Tokens& prompt, const Tokens& blocks,
              int32_t max_rows = 1000) {
    Batch batch{.step_id = runner.next_step_id()};
    core::SamplingParams greedy;
    greedy.temperature = 0;
    batch.admissions.push_back({.slot = 0,
                                .prompt = prompt,
                                .max_rows = max_rows,
                                .sampling = greedy,
                                .stop_token_ids = {}});
    for (const int32_t group : {0, 1})
      batch.block_appends.push_back({.slot = 0, .kv_group = group, .block_ids = blocks});
    batch.slices.push_back({.slot = 0,
                            .num_tokens = static_cast<int32_t>(prompt.size()),
                            .tokens = prompt,
                            .num_drafts_to_propose = 7});
    return batch;
  }
  static Batch verify(const SimRunner& runner, int num_drafts, int num_more = 7) {
    Batch batch{.step_id = runner.next_step_id()};
    batch.slices.push_back({.slot = 0,
                            .num_tokens = 1 + num_drafts,
                            .outputs = num_drafts == 0 ? Outputs::kLast : Outputs::kAll,
                            .num_drafts_to_propose = num_more});
    return batch;
  }
  static core::SliceResult run(SimRunner& runner, const Batch& batch) {
    runner.submit(batch);
    return runner.wait().slices.at(0);
  }
  static void expect_chain(Tokens& tokens, const core::SliceResult& result) {
    for (const core::SampledToken& token : result.tokens) {
      EXPECT_EQ(token.token, expected_run(tokens));
      tokens.push_back(token.token);
    }
  }
};

TEST_F(Verify, accepts_the_targets_own_draws_in_chains_and_trees) {
  for (const int top_k : {1, 3})
    for (const double agreement : {0.0, 0.5, 1.0}) {
      SimRunner runner(config(agreement, top_k));
      Tokens tokens = {1, 2, 3, 4, 5};
      core::SliceResult result = run(runner, start(runner, tokens, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
      expect_chain(tokens, result);
      int num_accepted = 0, num_verified = 0;
      for (int step = 0; step < 6; ++step) {
        const size_t num_drafts = result.drafts.size();
        EXPECT_EQ(num_drafts, top_k == 1 ? 3u : 7u);
        result = run(runner, verify(runner, static_cast<int>(num_drafts)));
        expect_chain(tokens, result);
        num_accepted += static_cast<int>(result.tokens.size()) - 1;
        num_verified += result.num_verified_drafts;
      }
      EXPECT_EQ(num_verified, top_k == 1 ? 18 : 42);
      if (agreement == 0) {
        EXPECT_EQ(num_accepted, 0);
      }
      if (agreement == 1) {
        EXPECT_GE(num_accepted, 12);
      }
    }
}

TEST_F(Verify, takes_as_many_drafts_as_it_is_told_and_a_decode_drops_them) {
  SimRunner runner(config(1));
  Tokens tokens = {1, 2, 3, 4, 5};
  expect_chain(tokens, run(runner, start(runner, tokens, {0, 1, 2, 3, 4, 5})));
  core::SliceResult result = run(runner, verify(runner, 2, /*num_more=*/1));
  EXPECT_EQ(result.num_verified_drafts, 2);
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(result.drafts.size(), 1u);
  expect_chain(tokens, result);
  result = run(runner, verify(runner, 3, /*num_more=*/2));  // it has one
  EXPECT_EQ(result.num_verified_drafts, 1);
  expect_chain(tokens, result);
  result = run(runner, verify(runner, 0, /*num_more=*/0));
  EXPECT_EQ(result.tokens.size(), 1u);
  EXPECT_TRUE(result.drafts.empty());
  expect_chain(tokens, result);
  result = run(runner, verify(runner, 3));  // it has none
  EXPECT_EQ(result.tokens.size(), 1u);
  expect_chain(tokens, result);
}

TEST_F(Verify, two_steps_in_flight_follow_each_other) {
  SimRunner runner(config(0.8));
  Tokens tokens = {1, 2, 3, 4, 5};
  runner.submit(start(runner, tokens, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  for (int step = 0; step < 6; ++step) {
    runner.submit(verify(runner, 3));
    expect_chain(tokens, runner.wait().slices.at(0));
  }
  expect_chain(tokens, runner.wait().slices.at(0));
  EXPECT_GT(tokens.size(), 5u + 7u);
}

TEST_F(Verify, rows_at_the_limit_are_inert) {
  for (const int top_k : {1, 3}) {
    SimRunner runner(config(1, top_k));
    Tokens tokens = {1, 2, 3, 4, 5};
    // Five rows of prompt and two more: three tokens can come out.
    runner.submit(start(runner, tokens, {0, 1}, /*max_rows=*/7));
    for (int step = 0; step < 3; ++step) {
      runner.submit(verify(runner, 3));
      expect_chain(tokens, runner.wait().slices.at(0));
    }
    const core::SliceResult last = runner.wait().slices.at(0);
    EXPECT_TRUE(last.tokens.empty());
    EXPECT_EQ(last.error, "");
    EXPECT_EQ(tokens.size(), 8u);
  }
}

TEST_F(Verify, a_mask_has_a_row_per_query_token) {
  SimRunner runner(config(1));
  Tokens tokens = {1, 2, 3, 4, 5};
  const core::SliceResult first = run(runner, start(runner, tokens, {0, 1, 2, 3}));
  expect_chain(tokens, first);
  const size_t row_words = (kVerifyVocabSize + 63) / 64;
  std::vector<uint64_t> words(4 * row_words, ~uint64_t{0});
  // Behind the first draft its own target is forbidden.
  const int32_t forbidden = first.drafts.at(1).token;
  words[row_words + static_cast<size_t>(forbidden) / 64] &= ~(uint64_t{1} << (forbidden % 64));
  Batch batch = verify(runner, 3);
  batch.slices[0].wants_mask = true;
  runner.submit(batch);
  runner.set_masks({.step_id = batch.step_id, .masks = {{.slice_idx = 0, .words = words}}});
  const core::SliceResult result = runner.wait().slices.at(0);
  ASSERT_EQ(result.tokens.size(), 2u);
  EXPECT_EQ(result.tokens[0].token, first.drafts[0].token);
  EXPECT_EQ(result.tokens[1].token, (forbidden + 1) % kVerifyVocabSize);
}

TEST_F(Verify, a_draft_that_allows_nothing_after_it_is_left_to_the_next_step) {
  SimRunner runner(config(1));
  Tokens tokens = {1, 2, 3, 4, 5};
  expect_chain(tokens, run(runner, start(runner, tokens, {0, 1, 2, 3})));
  const size_t row_words = (kVerifyVocabSize + 63) / 64;
  std::vector<uint64_t> words(4 * row_words, ~uint64_t{0});
  std::fill_n(words.begin() + static_cast<std::ptrdiff_t>(2 * row_words), row_words, uint64_t{0});
  Batch batch = verify(runner, 3);
  batch.slices[0].wants_mask = true;
  runner.submit(batch);
  runner.set_masks({.step_id = batch.step_id, .masks = {{.slice_idx = 0, .words = words}}});
  const core::SliceResult result = runner.wait().slices.at(0);
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.tokens.size(), 2u);
  expect_chain(tokens, result);
  expect_chain(tokens, run(runner, verify(runner, 0)));
}

TEST_F(Verify, aborts_when_the_upper_bound_has_no_blocks) {
  SimRunner runner(config(0));
  runner.submit(start(runner, {1, 2, 3, 4, 5}, {0, 1}));
  EXPECT_DEATH(runner.submit(verify(runner, 3)), "slot 0 may grow to 9 rows in 2 blocks of 4");
  runner.submit(verify(runner, 2));
  runner.wait();
  // The step in flight may have accepted two, or none.
  EXPECT_DEATH(runner.submit(verify(runner, 0)), "slot 0 may grow to 9 rows in 2 blocks of 4");
  runner.wait();
  runner.submit(verify(runner, 1));
  runner.wait();
}

TEST_F(Verify, aborts_when_a_block_is_shared_that_only_the_upper_bound_fills) {
  SimRunner runner(config(1));
  const Tokens prompt = {1, 2, 3, 4, 5};
  run(runner, start(runner, prompt, {0, 1, 2, 3}));
  runner.submit(verify(runner, 3));
  Batch reader{.step_id = runner.next_step_id()};
  reader.admissions.push_back(
      {.slot = 1, .num_cached_tokens = 8, .prompt = Tokens(9, 1), .stop_token_ids = {}});
  reader.block_appends.push_back({.slot = 1, .kv_group = 0, .block_ids = {0, 1}});
  EXPECT_DEATH(runner.submit(reader), "block 1 is shared with slot 1, slot 0 still writes it");
}

TEST_F(Verify, aborts_when_a_cached_row_of_the_drafter_is_before_another_token) {
  SimRunner runner(config(1));
  const Tokens prompt = {1, 2, 3, 4, 5};
  run(runner, start(runner, prompt, {0, 1, 2, 3}));
  Batch reader{.step_id = runner.next_step_id()};
  reader.admissions.push_back(
      {.slot = 1, .num_cached_tokens = 4, .prompt = {1, 2, 3, 4, 6}, .stop_token_ids = {}});
  for (const int32_t group : {0, 1})
    reader.block_appends.push_back({.slot = 1, .kv_group = group, .block_ids = {0}});
  runner.submit(reader);
  EXPECT_DEATH(runner.wait(),
               "the drafter's row 3 of slot 1 holds token 4 before 5, not 4 before 6");
}

}  // namespace
}  // namespace fathom::runner
