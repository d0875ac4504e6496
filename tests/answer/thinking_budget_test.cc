// The budget of a reasoning, token by token: what may come, and that the end marker comes once.

#include "answer/thinking_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "answer/constraint_factory.h"
#include "base/token_mask.h"
#include "tests/api/demo_served_model.h"

namespace fathom::answer {
namespace {

constexpr int kVocabSize = 2048;

const text::Tokenizer& tokenizer() { return *api::tests::demo_tokenizer(); }

int32_t think_end() { return tokenizer().token_id("</think>").value(); }

std::vector<int32_t> tokens_of(std::string_view text) { return tokenizer().encode(text); }

using Constraint = std::unique_ptr<core::TokenConstraint>;

Constraint budget(int num_tokens, bool starts_in_reasoning = true, Constraint inner = nullptr,
                  std::vector<int32_t> marker = {}) {
  if (marker.empty()) marker = end_marker_tokens(tokenizer());
  return std::make_unique<ThinkingBudget>(
      ThinkingBudget::Limit{.tokenizer = &tokenizer(),
                            .end_marker = std::make_shared<std::vector<int32_t>>(std::move(marker)),
                            .num_tokens = num_tokens,
                            .starts_in_reasoning = starts_in_reasoning},
      std::move(inner));
}

std::vector<int32_t> allowed(core::TokenConstraint& constraint) {
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(kVocabSize)));
  constraint.fill_mask(words);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < kVocabSize; ++token) {
    if (mask_allows(words.data(), token)) tokens.push_back(token);
  }
  return tokens;
}

bool is_forced(core::TokenConstraint& constraint) { return allowed(constraint).size() == 1; }

// What a model writes that wants `text` for ever, as far as the constraint lets it.
std::string written(core::TokenConstraint& constraint, std::string_view text, int num_tokens) {
  const std::vector<int32_t> wanted = tokens_of(text);
  std::vector<int32_t> output;
  for (size_t i = 0; std::ssize(output) < num_tokens; ++i) {
    const std::vector<int32_t> may = allowed(constraint);
    const int32_t token = may.size() == 1 ? may.front() : wanted[i % wanted.size()];
    EXPECT_TRUE(constraint.accept(token)) << token;
    output.push_back(token);
  }
  return tokenizer().decode(output, false);
}

TEST(ThinkingBudget, ends_the_reasoning_with_its_last_token_and_lets_the_answer_be) {
  const Constraint constraint = budget(4);
  EXPECT_EQ(constraint->num_free_tokens(), 3);
  EXPECT_EQ(written(*constraint, "7", 9), "777</think>77777");
  EXPECT_TRUE(constraint->is_free());
  EXPECT_EQ(allowed(*constraint).size(), static_cast<size_t>(kVocabSize));
}

TEST(ThinkingBudget, does_nothing_where_the_model_ends_its_reasoning_itself) {
  const Constraint constraint = budget(6);
  EXPECT_EQ(written(*constraint, "7</think>8", 6), "7</think>87</think>8");
  EXPECT_TRUE(constraint->is_free());
}

TEST(ThinkingBudget, that_the_marker_does_not_fit_into_ends_the_reasoning_at_once) {
  for (const int tokens : {0, 1}) {
    const Constraint constraint = budget(tokens);
    EXPECT_EQ(constraint->num_free_tokens(), 0);
    EXPECT_EQ(written(*constraint, "7", 3), "</think>77");
  }
}

TEST(ThinkingBudget, refuses_what_it_does_not_allow) {
  const Constraint constraint = budget(1);
  EXPECT_FALSE(constraint->accept(tokens_of("7").front()));
  EXPECT_TRUE(constraint->accept(think_end()));
  EXPECT_TRUE(constraint->accept(tokens_of("7").front()));
}

TEST(ThinkingBudget, of_a_reasoning_that_the_model_begins_waits_for_its_beginning) {
  EXPECT_EQ(written(*budget(3, false), "<think>7", 6), "<think>7</think>7<think>7");
  EXPECT_EQ(written(*budget(1, false), "<think>7", 4), "<think></think><think>7");
  const Constraint unused = budget(2, false);
  EXPECT_EQ(written(*unused, "It is", 6), "It isIt isIt is");
  EXPECT_TRUE(unused->is_free());
}

TEST(ThinkingBudget, forces_a_marker_of_several_tokens_whole) {
  const std::vector<int32_t> marker = tokenizer().encode("</think>", {.parse_special = false});
  ASSERT_GT(marker.size(), 2U);
  const int size = static_cast<int>(marker.size());
  const Constraint constraint = budget(size + 2, true, nullptr, marker);
  EXPECT_EQ(written(*constraint, "7", size + 5), "77</think>777");
  // A beginning that the model wrote itself is text, and the marker behind it counts.
  const Constraint begun = budget(size + 1, true, nullptr, marker);
  ASSERT_TRUE(begun->accept(marker.front()));
  const std::string text = written(*begun, "7", size + 1);
  EXPECT_EQ(text, "</think>7");
}

TEST(ThinkingBudget, knows_a_marker_that_is_spelt_in_other_tokens) {
  const Constraint constraint = budget(50);
  for (const int32_t token : tokenizer().encode("a</think>b", {.parse_special = false})) {
    ASSERT_TRUE(constraint->accept(token));
  }
  EXPECT_TRUE(constraint->is_free());
}

TEST(ThinkingBudget, copies_go_their_own_ways) {
  const Constraint first = budget(3);
  ASSERT_TRUE(first->accept(tokens_of("7").front()));
  const Constraint second = first->clone();
  ASSERT_TRUE(first->accept(tokens_of("7").front()));
  EXPECT_TRUE(is_forced(*first));
  EXPECT_FALSE(is_forced(*second));
  EXPECT_EQ(written(*second, "8", 3), "8</think>8");
}

TEST(ThinkingBudget, leaves_an_end_token_that_is_ignored_alone) {
  EXPECT_FALSE(budget(3)->ends_at_eos());
}

// Beside a grammar, which holds behind the reasoning.
class ThinkingBudgetWithGrammar : public testing::TestWithParam<text::ChatFormat> {
 protected:
  Constraint grammar(std::string_view pattern) {
    api::GenerationRequest request;
    request.chat.format = GetParam();
    request.chat.starts_in_reasoning = GetParam() == text::ChatFormat::kV31;
    api::GenerationItem item;
    item.grammar = std::make_shared<const api::GrammarSource>(api::GrammarSource{
        .kind = api::GrammarSource::Kind::kRegex, .text = std::string(pattern), .field = "regex"});
    ConstraintFactory factory({.tokenizer = api::tests::demo_tokenizer(),
                               .vocab_size = kVocabSize,
                               .eos_token_ids = {1}});
    api::Parsed<ConstraintPtr> made = factory.make(request, item);
    return std::move(std::get<ConstraintPtr>(made));
  }
};

TEST_P(ThinkingBudgetWithGrammar, hands_over_to_it) {
  const bool starts = GetParam() == text::ChatFormat::kV31;
  const Constraint constraint = budget(4, starts, grammar("[0-9]{2}"));
  EXPECT_EQ(constraint->num_free_tokens(), 0);
  EXPECT_TRUE(constraint->ends_at_eos());
  std::vector<int32_t> output;
  const auto write = [&](int32_t token) {
    ASSERT_TRUE(constraint->accept(token)) << token;
    output.push_back(token);
  };
  if (!starts) write(tokenizer().token_id("<think>").value());
  while (output.size() < 3) {
    EXPECT_GT(allowed(*constraint).size(), 100U);
    write(tokens_of("z").front());
  }
  EXPECT_EQ(allowed(*constraint), std::vector<int32_t>{think_end()});
  write(think_end());
  EXPECT_FALSE(constraint->is_free());
  for (const int32_t token : allowed(*constraint)) {
    const std::string_view bytes = tokenizer().token_bytes(token);
    EXPECT_EQ(bytes.find_first_not_of("0123456789\n"), std::string_view::npos) << bytes;
  }
  write(tokens_of("4").front());
  write(tokens_of("2").front());
  EXPECT_EQ(allowed(*constraint), std::vector<int32_t>{1});
}

INSTANTIATE_TEST_SUITE_P(Formats, ThinkingBudgetWithGrammar,
                         testing::Values(text::ChatFormat::kV31, text::ChatFormat::kR1_0528),
                         [](const auto& info) {
                           return info.param == text::ChatFormat::kV31 ? "opened" : "written";
                         });

}  // namespace
}  // namespace fathom::answer
