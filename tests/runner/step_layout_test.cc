#include "runner/step_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/reference/reference_backend.h"

namespace fathom::runner {
namespace {

using core::Outputs;
using model::AttentionForm;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kBlockTokens = 4;

// Absorbed up to two query tokens.
AttentionForm form_of(int64_t num_tokens, int64_t) {
  return num_tokens <= 2 ? AttentionForm::kAbsorbed : AttentionForm::kExpanded;
}

class StepLayoutTest : public ::testing::Test {
 protected:
  StepLayoutTest()
      : writes_(cpu::reference_backend(), /*num_frames=*/1),
        slots_({.max_slots = 4, .max_blocks = 20}, cpu::reference_backend()) {}

  void admit(int32_t slot, const std::vector<int32_t>& prompt, int32_t length,
             bool prompt_logprobs = false, int32_t num_generated = 0) {
    core::SamplingParams params;
    params.return_prompt_logprobs = prompt_logprobs;
    slots_.admit(
        {.slot = slot, .prompt = prompt, .num_generated_tokens = num_generated, .sampling = params},
        writes_);
    slots_.append_blocks({.slot = slot, .kv_group = 0, .block_ids = std::vector<int32_t>(20, slot)},
                         writes_);
    slots_.advance(slot, length, /*goes_on=*/false);
  }
  StepLayout lay_out(const core::Batch& batch) {
    return lay_out_step(batch, slots_, kBlockTokens, form_of);
  }

  ops::DeviceWrites writes_;
  SlotTable slots_;
};

TEST_F(StepLayoutTest, puts_absorbed_sequences_first_and_counts_from_the_slots_lengths) {
  admit(0, {10, 11, 12, 13, 14}, 2);
  admit(1, {20}, 7);
  core::Batch batch;
  batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = {12, 13, 14}});
  batch.slices.push_back({.slot = 1});
  const StepLayout layout = lay_out(batch);
  EXPECT_THAT(layout.order, ElementsAre(1, 0));
  EXPECT_THAT(layout.slice_slot, ElementsAre(1, 0));
  EXPECT_THAT(layout.query_start, ElementsAre(0, 1, 4));
  EXPECT_THAT(layout.given_token, ElementsAre(-1, 12, 13, 14));
  EXPECT_THAT(layout.relative, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(layout.tree_mask, IsEmpty());
  EXPECT_THAT(layout.commit_row, ElementsAre(0, 1));
  EXPECT_EQ(layout.num_absorbed_sequences, 1);
  EXPECT_EQ(layout.num_absorbed_tokens, 1);
  ASSERT_EQ(layout.expanded.size(), 1u);
  EXPECT_EQ(layout.expanded[0].token_begin, 1);
  EXPECT_EQ(layout.expanded[0].kv_begin, 2);
  EXPECT_EQ(layout.expanded[0].sequence_idx, 1);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.rows[0].sample.position, 8);
  EXPECT_EQ(layout.rows[1].sample.position, 5);
  EXPECT_EQ(layout.rows[1].token_idx, 3);
  EXPECT_EQ(layout.rows[1].slice_idx, 0);
}

TEST_F(StepLayoutTest, forces_the_successors_of_prompt_tokens_that_the_request_brought) {
  admit(0, {10, 11, 12, 13, 14}, 0, /*prompt_logprobs=*/true, /*num_generated=*/1);
  core::Batch batch;
  batch.slices.push_back({.slot = 0, .num_tokens = 5, .tokens = {10, 11, 12, 13, 14}});
  const StepLayout layout = lay_out(batch);
  ASSERT_EQ(layout.rows.size(), 4u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(layout.rows[static_cast<size_t>(i)].sample.forced, 11 + i);
    EXPECT_EQ(layout.rows[static_cast<size_t>(i)].token_idx, i);
  }
  EXPECT_EQ(layout.rows[3].sample.forced, -1);
  EXPECT_THAT(layout.commit_row, ElementsAre(3));
}

TEST_F(StepLayoutTest, takes_the_successor_of_a_chunks_last_token_from_the_prompt) {
  admit(0, {10, 11, 12, 13}, 0, /*prompt_logprobs=*/true);
  core::Batch batch;
  batch.slices.push_back(
      {.slot = 0, .num_tokens = 2, .tokens = {10, 11}, .outputs = Outputs::kNone});
  const StepLayout layout = lay_out(batch);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.rows[1].sample.forced, 12);
  EXPECT_THAT(layout.commit_row, ElementsAre(-1));
}

TEST_F(StepLayoutTest, writes_causal_views_as_bits_beside_a_tree) {
  admit(0, {1}, 4);
  admit(1, {2, 3, 4}, 0);
  admit(2, {5, 6}, 0);
  core::Batch batch;
  batch.slices.push_back({.slot = 1, .num_tokens = 3, .tokens = {2, 3, 4}});
  batch.slices.push_back({.slot = 2, .num_tokens = 2, .tokens = {5, 6}});
  batch.slices.push_back({.slot = 0,
                          .num_tokens = 3,
                          .tokens = {7, 8, 9},
                          .tree_mask = {0b001, 0b011, 0b101},
                          .relative_positions = {0, 1, 1},
                          .outputs = Outputs::kAll});
  const StepLayout layout = lay_out(batch);
  // The tree is verified, so absorbed.
  EXPECT_THAT(layout.order, ElementsAre(1, 2, 0));
  EXPECT_EQ(layout.num_absorbed_sequences, 2);
  EXPECT_THAT(layout.tree_mask, ElementsAre(0b1, 0b11, 0b001, 0b011, 0b101, 0b1, 0b11, 0b111));
  EXPECT_FALSE(layout.expanded.at(0).has_tree_mask);
  EXPECT_THAT(layout.relative, ElementsAre(0, 1, 0, 1, 1, 0, 1, 2));
  EXPECT_EQ(layout.rows.size(), 5u);
  EXPECT_EQ(layout.rows[2].sample.position, 6);
  EXPECT_EQ(layout.rows[3].sample.position, 6);
}

TEST_F(StepLayoutTest, lets_no_tree_choose_the_form_of_a_long_slice_beside_it) {
  admit(0, {1}, 4);
  admit(1, std::vector<int32_t>(70, 2), 0);
  core::Batch batch;
  batch.slices.push_back({.slot = 1, .num_tokens = 70, .tokens = std::vector<int32_t>(70, 2)});
  batch.slices.push_back({.slot = 0, .num_tokens = 1, .tokens = {7}, .tree_mask = {1}});
  const StepLayout layout = lay_out_step(batch, slots_, kBlockTokens,
                                         [](int64_t, int64_t) { return AttentionForm::kAbsorbed; });
  EXPECT_EQ(layout.num_absorbed_sequences, 2);
  EXPECT_TRUE(layout.expanded.empty());
  EXPECT_EQ(layout.tree_mask.size(), 71u);
  EXPECT_EQ(layout.tree_mask[70], 1u);
}

TEST_F(StepLayoutTest, aborts_on_what_the_contract_forbids) {
  admit(0, {1}, 79);
  core::Batch batch;
  batch.slices.push_back({.slot = 0, .num_tokens = 2, .tokens = {1, 2}});
  EXPECT_DEATH(lay_out(batch), "slot 0 grows to 81 rows in 20 blocks");
  batch.slices[0] = {.slot = 0, .num_tokens = 2, .tokens = {1}};
  EXPECT_DEATH(lay_out(batch), "2 query tokens, 1 given");
  batch.slices[0] = {.slot = 0, .num_tokens = 1, .tokens = {1}, .tree_mask = {1, 2}};
  EXPECT_DEATH(lay_out(batch), "2 masks for 1 query tokens");
  batch.slices[0] = {.slot = 3};
  EXPECT_DEATH(lay_out(batch), "slice of slot 3, which is free");
  batch.slices[0] = {.slot = 0, .num_tokens = 4, .outputs = Outputs::kAll};
  EXPECT_DEATH(lay_out(batch), "4 query tokens, 0 given");
  batch.slices[0] = {.slot = 0, .num_drafts_to_propose = 3};
  EXPECT_DEATH(lay_out(batch), "3 drafts of slot 0 wanted, there is no drafter");
}

// Slices of 3 and 1 tokens in a captured step of 3 slots: each row stays its slice's, what fills up belongs to nobody.
TEST_F(StepLayoutTest, fills_verifications_up_to_the_longest) {
  const DrafterInfo drafter = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4};
  admit(0, {10, 11}, 2);
  admit(2, {20}, 7);
  core::Batch batch;
  batch.slices.push_back({.slot = 2, .num_drafts_to_propose = 2});
  batch.slices.push_back(
      {.slot = 0, .num_tokens = 3, .outputs = Outputs::kAll, .num_drafts_to_propose = 1});
  StepLayout layout = lay_out_step(batch, slots_, kBlockTokens, form_of, drafter);
  EXPECT_EQ(layout.num_levels, 2);
  ASSERT_EQ(captured_step(layout, drafter).num_tokens, 3);
  ASSERT_EQ(captured_step(layout, drafter).num_slices, 2);
  pad_step(layout, {.num_slices = 3, .num_tokens = 3, .drafter = drafter});
  EXPECT_THAT(layout.slice_slot, ElementsAre(2, 0, -1));
  EXPECT_THAT(layout.query_start, ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(layout.num_wanted, ElementsAre(1, 3, 3));
  EXPECT_THAT(layout.first_row, ElementsAre(0, 3, 6));
  EXPECT_THAT(layout.num_asked, ElementsAre(2, 1, 0));
  EXPECT_EQ(layout.num_levels, 2);
  EXPECT_EQ(layout.num_absorbed_tokens, 9);
  EXPECT_THAT(layout.next_given, ::testing::Each(-1));
  ASSERT_EQ(layout.rows.size(), 9u);
  const std::vector<int32_t> slices = {0, -1, -1, 1, 1, 1, -1, -1, -1};
  const std::vector<int32_t> drafts = {-1, -1, -1, -1, 0, 1, -1, -1, -1};
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(layout.rows[i].token_idx, static_cast<int32_t>(i));
    EXPECT_EQ(layout.rows[i].slice_idx, slices[i]) << "row " << i;
    EXPECT_EQ(layout.rows[i].draft, drafts[i]) << "row " << i;
    EXPECT_EQ(layout.rows[i].sample.slot < 0, slices[i] < 0) << "row " << i;
    EXPECT_TRUE(layout.rows[i].sample.is_bound);
  }
  batch.slices.push_back({.slot = 1, .num_tokens = 2, .tokens = {30, 31}});
  admit(1, {30, 31, 32}, 0);
  EXPECT_EQ(captured_step(lay_out_step(batch, slots_, kBlockTokens, form_of, drafter), drafter)
                .num_tokens,
            0);
}

// What decides is what all lanes know: the longest lane and the longest slice of any.
TEST_F(StepLayoutTest, pads_all_lanes_to_the_longest) {
  admit(0, {10, 11}, 2);
  core::Batch batch;
  batch.slices.push_back({.slot = 0});
  batch.shape = {.lane_tokens = {1, 3}, .lane_slices = {1, 3}, .going_on_tokens = 1};
  StepLayout layout = lay_out_step(batch, slots_, kBlockTokens, form_of);
  EXPECT_EQ(captured_step(layout, {}).num_slices, 3);
  ASSERT_EQ(captured_step(layout, {}).num_tokens, 1);
  pad_step(layout, {.num_slices = 4, .num_lanes = 2, .drafter = {}});
  EXPECT_THAT(layout.slice_slot, ElementsAre(0, -1, -1, -1));
  EXPECT_THAT(layout.lane_tokens, ElementsAre(4, 4));
  EXPECT_THAT(layout.lane_slices, ElementsAre(4, 4));
  // Another lane has a prompt.
  batch.shape.going_on_tokens = 0;
  EXPECT_EQ(captured_step(lay_out_step(batch, slots_, kBlockTokens, form_of), {}).num_tokens, 0);
}

// A draft may lie less deep than its place in a tree says, so bans must be sent as if it were the first.
TEST_F(StepLayoutTest, positions_of_drafts_are_lower_bounds) {
  const DrafterInfo drafter = {.num_steps = 2, .top_k = 3, .num_draft_tokens = 6};
  admit(0, {10, 11}, 2);
  core::Batch batch;
  batch.slices.push_back({.slot = 0, .num_tokens = 5, .outputs = Outputs::kAll});
  const StepLayout layout = lay_out_step(batch, slots_, kBlockTokens, form_of, drafter);
  ASSERT_EQ(layout.rows.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(layout.rows[i].sample.position, i == 0 ? 3 : 4);
  EXPECT_EQ(layout.tree_mask.size(), 5u);
}

// Attention reads no table further than its sequences' blocks, and than where drafts that are inert may stand.
TEST_F(StepLayoutTest, counts_the_blocks_of_the_longest_sequence) {
  for (const auto& [slot, blocks] : {std::pair{0, 3}, {1, 5}, {2, 9}}) {
    slots_.admit({.slot = slot, .prompt = {1}}, writes_);
    slots_.append_blocks({.slot = slot,
                          .kv_group = 0,
                          .block_ids = std::vector<int32_t>(static_cast<size_t>(blocks), slot)},
                         writes_);
  }
  core::Batch batch;
  batch.slices.push_back({.slot = 0});
  batch.slices.push_back({.slot = 1});
  batch.slices.push_back({.slot = 2, .num_tokens = 3, .tokens = {1, 2, 3}});  // expanded
  EXPECT_EQ(lay_out(batch).table_blocks, 9);
  batch.slices.resize(2);
  const DrafterInfo chain{.num_steps = 4, .top_k = 1, .num_draft_tokens = 5};
  EXPECT_EQ(lay_out_step(batch, slots_, kBlockTokens, form_of, chain).table_blocks, 7);
}

}  // namespace
}  // namespace fathom::runner
