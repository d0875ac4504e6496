// Which graph a step of decodes takes: by its sequences, its drafts and, where attention has kernels for long contexts,
// by the blocks of its longest sequence.

#include "runner/captured_steps.h"

#include <gtest/gtest.h>

#include <set>

#include "cpu/fast/fast_backend.h"

namespace fathom::runner {
namespace {

// Of four rows; two sequences are short with 16 of them each.
constexpr int64_t kMaxBlocks = 100, kShortRows = 128;

class CapturedStepsTest : public ::testing::Test {
 protected:
  // The layouts of which there are graphs.
  std::vector<StepLayout> capture(CapturedSteps& steps) {
    std::vector<StepLayout> layouts;
    steps.capture(parts(layouts), *stream_);
    return layouts;
  }
  static CapturedSteps::Parts parts(std::vector<StepLayout>& layouts) {
    return {.stage = [&](const StepLayout& layout) { layouts.push_back(layout); },
            .forward = [](const StepLayout&) { return tensor::Tensor(); },
            .sample = [](const StepLayout&, bool, const tensor::Tensor&) {}};
  }

  static CapturedStepsConfig config() {
    return {.batch_sizes = {1, 2, 4, 8},
            .long_attention = {{.rows = kShortRows, .tokens = 4}},
            .max_blocks = kMaxBlocks,
            .block_tokens = 4,
            .max_logit_rows = 64,
            .max_batch_tokens = 64};
  }

  // Decodes of so many sequences, the longest of which has so many blocks.
  static StepLayout decodes(int sequences, int64_t blocks) {
    StepLayout layout;
    pad_step(layout, {.num_slices = sequences, .num_blocks = blocks, .drafter = {}});
    return layout;
  }

  const std::unique_ptr<ops::Stream> stream_ = cpu::fast_backend().make_stream({.num_threads = 1});
};

TEST_F(CapturedStepsTest, few_long_sequences_have_graphs_of_their_own) {
  CapturedSteps steps(config());
  capture(steps);
  StepLayout at_most = decodes(2, 16), more = decodes(2, 17);
  const CapturedSteps::Graphs* const short_graphs = steps.pad(at_most);
  const CapturedSteps::Graphs* const long_graphs = steps.pad(more);
  ASSERT_NE(short_graphs, nullptr);
  ASSERT_NE(long_graphs, nullptr);
  EXPECT_NE(short_graphs, long_graphs);
  EXPECT_EQ(at_most.table_blocks, 16);
  EXPECT_EQ(more.table_blocks, kMaxBlocks);
}

TEST_F(CapturedStepsTest, many_sequences_have_one_graph_whatever_their_lengths) {
  CapturedSteps steps(config());
  capture(steps);
  StepLayout short_ones = decodes(3, 1), long_ones = decodes(3, kMaxBlocks);
  EXPECT_EQ(steps.pad(short_ones), steps.pad(long_ones));  // padded to 4
  EXPECT_EQ(short_ones.table_blocks, kMaxBlocks);
  EXPECT_EQ(short_ones.num_slices(), 4);
}

TEST_F(CapturedStepsTest, no_step_is_captured_twice) {
  CapturedStepsConfig plain = config();
  std::vector<int64_t> blocks;
  for (const StepLayout& layout : [&] {
         CapturedSteps steps(plain);
         return capture(steps);
       }())
    blocks.push_back(layout.table_blocks);
  const int64_t m = kMaxBlocks;
  EXPECT_EQ(blocks, (std::vector<int64_t>{m, 32, m, 16, m, m}));  // 1, 1, 2, 2, 4, 8 sequences
  for (const ops::LongAttention& none :
       {ops::LongAttention{}, {.rows = kShortRows, .tokens = 1}, {.rows = 1000, .tokens = 4}}) {
    plain.long_attention = {none};
    CapturedSteps steps(plain);
    EXPECT_EQ(capture(steps).size(), 4u) << none.rows << " rows, " << none.tokens << " tokens";
  }
}

TEST_F(CapturedStepsTest, steps_with_older_kernels_are_captured_again_one_by_one) {
  int64_t version = 0;
  CapturedStepsConfig changing = config();
  changing.code_version = [&version] { return CodeVersion{.number = version}; };
  CapturedSteps steps(changing);
  const auto shapes_of = [](const std::vector<StepLayout>& layouts) {
    std::multiset<std::pair<int64_t, int64_t>> shapes;
    for (const StepLayout& layout : layouts)
      shapes.emplace(layout.num_slices(), layout.table_blocks);
    return shapes;
  };
  const std::vector<StepLayout> first = capture(steps);
  std::vector<StepLayout> again;
  EXPECT_FALSE(steps.renew_one(parts(again), *stream_));
  version = 1;
  StepLayout layout = decodes(2, 16);
  const CapturedSteps::Graphs* const graphs = steps.pad(layout);
  const ops::Graph* const before = graphs->forward.get();
  for (size_t i = 1; i <= first.size(); ++i) {
    ASSERT_TRUE(steps.renew_one(parts(again), *stream_));
    EXPECT_EQ(again.size(), i);
  }
  EXPECT_FALSE(steps.renew_one(parts(again), *stream_));
  EXPECT_EQ(shapes_of(again), shapes_of(first));
  EXPECT_NE(graphs->forward.get(), before);
}

TEST_F(CapturedStepsTest, every_limit_of_lengths_has_graphs_of_its_own) {
  CapturedStepsConfig two = config();
  two.batch_sizes = {1, 2};
  two.long_attention.push_back({.rows = 40, .tokens = 2});
  CapturedSteps steps(two);
  std::vector<int64_t> blocks;
  for (const StepLayout& layout : capture(steps)) blocks.push_back(layout.table_blocks);
  EXPECT_EQ(blocks, (std::vector<int64_t>{kMaxBlocks, 32, 10, kMaxBlocks, 16}));
  for (const int64_t limit : {int64_t{10}, int64_t{32}, int64_t{kMaxBlocks}}) {
    StepLayout layout = decodes(1, limit);
    ASSERT_NE(steps.pad(layout), nullptr);
    EXPECT_EQ(layout.table_blocks, limit);
    StepLayout less = decodes(1, limit - 1);
    ASSERT_NE(steps.pad(less), nullptr);
    EXPECT_EQ(less.table_blocks, limit);
  }
}

TEST_F(CapturedStepsTest, drafts_of_short_and_of_long_sequences_are_captured) {
  CapturedStepsConfig chain = config();
  chain.batch_sizes = {1};
  chain.drafter = {.num_steps = 2, .top_k = 1, .num_draft_tokens = 3};
  CapturedSteps steps(chain);
  const std::vector<StepLayout> layouts = capture(steps);
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const StepLayout& layout : layouts)
    shapes.emplace_back(layout.num_tokens(), layout.table_blocks);
  EXPECT_EQ(shapes, (std::vector<std::pair<int64_t, int64_t>>{
                        {1, 100}, {1, 32}, {2, 100}, {2, 16}, {3, 100}, {3, 10}}));
}

TEST_F(CapturedStepsTest, a_limit_of_one_sequence_counts_its_rows_once) {
  CapturedStepsConfig chain = config();
  chain.batch_sizes = {1, 2};
  chain.drafter = {.num_steps = 2, .top_k = 1, .num_draft_tokens = 3};
  chain.long_attention = {{.rows = kShortRows, .tokens = 3, .of_one_sequence = true}};
  CapturedSteps steps(chain);
  std::vector<std::pair<int64_t, int64_t>> shapes;
  for (const StepLayout& layout : capture(steps))
    shapes.emplace_back(layout.num_tokens(), layout.table_blocks);
  EXPECT_EQ(
      shapes,
      (std::vector<std::pair<int64_t, int64_t>>{
          {1, 100}, {1, 32}, {2, 100}, {2, 32}, {3, 100}, {2, 100}, {2, 32}, {4, 100}, {6, 100}}));
  chain.drafter = {};
  CapturedSteps plain(chain);
  capture(plain);
  StepLayout one = decodes(1, 32), two = decodes(2, 17), longer = decodes(2, 33);
  ASSERT_NE(plain.pad(one), nullptr);
  ASSERT_NE(plain.pad(two), nullptr);
  ASSERT_NE(plain.pad(longer), nullptr);
  EXPECT_EQ(one.table_blocks, 32);
  EXPECT_EQ(two.table_blocks, 32);
  EXPECT_EQ(longer.table_blocks, kMaxBlocks);
}

}  // namespace
}  // namespace fathom::runner
