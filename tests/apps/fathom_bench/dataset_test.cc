#include "apps/fathom_bench/dataset.h"
#include "tests/source_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace fathom::apps {
namespace {

const text::Tokenizer& demo_tokenizer() {
  static const text::Tokenizer tokenizer = [] {
    Result<text::Tokenizer> loaded = text::Tokenizer::load(source_path("models/demo"));
    FATHOM_CHECK(loaded, "the demo model's tokenizer");
    return std::move(*loaded);
  }();
  return tokenizer;
}

std::vector<std::vector<int32_t>> ids_of(const std::vector<BenchPrompt>& prompts) {
  std::vector<std::vector<int32_t>> ids;
  for (const BenchPrompt& prompt : prompts) ids.push_back(prompt.ids);
  return ids;
}

TEST(SeededDraws, stay_in_their_range_and_reach_both_ends) {
  SeededDraws draws(7);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(draws.between(-2, 3));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2, 3}));
}

TEST(SeededDraws, arrive_with_the_mean_that_was_asked_for) {
  SeededDraws draws(7);
  double sum = 0;
  for (int i = 0; i < 20000; ++i) sum += draws.exponential(0.25);
  EXPECT_NEAR(sum / 20000, 0.25, 0.01);
}

TEST(RandomPrompts, are_the_same_for_a_seed_and_differ_between_seeds) {
  const PromptWords words(demo_tokenizer());
  const RandomDataset dataset{
      .num_prompts = 20, .input_len = 50, .output_len = 9, .range_ratio = 0.2};
  SeededDraws one(1), same(1), other(2);
  const auto prompts = random_prompts(dataset, words, one);
  EXPECT_EQ(ids_of(prompts), ids_of(random_prompts(dataset, words, same)));
  EXPECT_NE(ids_of(prompts), ids_of(random_prompts(dataset, words, other)));
}

TEST(RandomPrompts, have_lengths_between_the_ratio_and_the_whole) {
  const PromptWords words(demo_tokenizer());
  SeededDraws draws(3);
  std::set<size_t> input_lens;
  std::set<int> output_lens;
  for (const BenchPrompt& prompt :
       random_prompts({.num_prompts = 400, .input_len = 10, .output_len = 20, .range_ratio = 0.5},
                      words, draws)) {
    input_lens.insert(prompt.ids.size());
    output_lens.insert(prompt.output_len);
  }
  EXPECT_EQ(*input_lens.begin(), 5u);
  EXPECT_EQ(*input_lens.rbegin(), 10u);
  EXPECT_EQ(*output_lens.begin(), 10);
  EXPECT_EQ(*output_lens.rbegin(), 20);
  SeededDraws more(3);
  for (const BenchPrompt& prompt : random_prompts(
           {.num_prompts = 50, .input_len = 8, .output_len = 4, .range_ratio = 1}, words, more)) {
    EXPECT_EQ(prompt.ids.size(), 8u);
    EXPECT_EQ(prompt.output_len, 4);
  }
}

TEST(RandomPrompts, split_into_the_same_tokens_again) {
  const PromptWords words(demo_tokenizer());
  SeededDraws draws(4);
  for (const BenchPrompt& prompt : random_prompts(
           {.num_prompts = 50, .input_len = 64, .output_len = 1, .range_ratio = 1}, words, draws)) {
    EXPECT_EQ(demo_tokenizer().encode(prompt.text), prompt.ids);
    EXPECT_EQ(prompt.text_tokens, 64);
  }
}

TEST(SharedPrefixPrompts, share_their_groups_prefix_and_nothing_else) {
  const PromptWords words(demo_tokenizer());
  SeededDraws draws(5);
  const auto prompts = shared_prefix_prompts({.num_groups = 6,
                                              .prompts_per_group = 5,
                                              .system_prompt_len = 40,
                                              .question_len = 12,
                                              .output_len = 3},
                                             words, draws);
  ASSERT_EQ(prompts.size(), 30u);
  std::map<std::vector<int32_t>, int> group_sizes;
  std::set<std::vector<int32_t>> questions;
  for (const BenchPrompt& prompt : prompts) {
    ASSERT_EQ(prompt.ids.size(), 52u);
    EXPECT_EQ(prompt.output_len, 3);
    ++group_sizes[{prompt.ids.begin(), prompt.ids.begin() + 40}];
    questions.insert({prompt.ids.begin() + 40, prompt.ids.end()});
  }
  EXPECT_EQ(group_sizes.size(), 6u);
  for (const auto& group : group_sizes) EXPECT_EQ(group.second, 5);
  EXPECT_EQ(questions.size(), 30u);
  // Shuffled: the first five are not one group.
  std::set<std::vector<int32_t>> first;
  for (size_t i = 0; i < 5; ++i) {
    first.insert({prompts[i].ids.begin(), prompts[i].ids.begin() + 40});
  }
  EXPECT_GT(first.size(), 1u);
}

}  // namespace
}  // namespace fathom::apps
