#include "answer/grammar_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "answer/constraint_factory.h"
#include "base/token_mask.h"
#include "tests/api/demo_served_model.h"

namespace fathom::answer {
namespace {

constexpr GrammarCache::Limits kLimits = {.max_bytes = 1 << 20, .max_bytes_in_use = 4 << 20};

CompiledForm refused_as(const std::string& message) {
  return api::invalid_parameter("regex", message);
}

CompiledForm compiled_regex(const std::string& pattern) {
  return grammar::compile(grammar::regex(pattern)).value();
}

TEST(GrammarCache, owners_share_nothing) {
  GrammarCache cache(kLimits);
  cache.add("alice", "a", compiled_regex("a"));
  EXPECT_TRUE(cache.find("alice", "a").has_value());
  EXPECT_FALSE(cache.find("bob", "a").has_value());
  EXPECT_FALSE(cache.find("", "a").has_value());
}

TEST(GrammarCache, refusals_are_kept) {
  GrammarCache cache(kLimits);
  cache.add("alice", "(", refused_as("no end"));
  const std::optional<CompiledForm> found = cache.find("alice", "(");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::get<api::ApiError>(*found).message, "no end");
}

TEST(GrammarCache, whoever_holds_the_most_makes_room) {
  const std::string large(10'000, 'x');
  GrammarCache cache({.max_bytes = 100'000, .max_bytes_in_use = 400'000});
  cache.add("bob", "b", compiled_regex("b"));
  for (int i = 0; i < 50; ++i) cache.add("alice", std::to_string(i), refused_as(large));
  EXPECT_LE(cache.num_bytes(), 100'000);
  EXPECT_TRUE(cache.find("bob", "b").has_value());
  EXPECT_TRUE(cache.find("alice", "49").has_value());
  EXPECT_FALSE(cache.find("alice", "0").has_value());
}

api::GenerationItem item_of(const std::string& pattern) {
  api::GenerationItem item;
  item.grammar = std::make_shared<const api::GrammarSource>(api::GrammarSource{
      .kind = api::GrammarSource::Kind::kRegex, .text = pattern, .field = "regex"});
  return item;
}

ConstraintFactory::Config demo_config() {
  return {.tokenizer = api::tests::demo_tokenizer(),
          .vocab_size = api::tests::demo_tokenizer()->vocab_size(),
          .eos_token_ids = {1}};
}

std::shared_ptr<const grammar::Vocabulary> demo_vocabulary() {
  const text::Tokenizer& tokenizer = *api::tests::demo_tokenizer();
  std::vector<grammar::VocabularyToken> tokens;
  for (int id = 0; id < tokenizer.vocab_size(); ++id)
    tokens.push_back({.bytes = tokenizer.token_bytes(id), .is_special = tokenizer.is_added(id)});
  return std::make_shared<const grammar::Vocabulary>(tokens, std::vector<int32_t>{1});
}

// Makes the masks of an output's first tokens.
void write_some(core::TokenConstraint& constraint, int vocab_size) {
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(vocab_size)));
  for (int i = 0; i < 5; ++i) {
    constraint.fill_mask(words);
    const auto word = std::ranges::find_if(words, [](uint64_t bits) { return bits != 0; });
    ASSERT_NE(word, words.end());
    const auto token = static_cast<int32_t>(64 * (word - words.begin()) + std::countr_zero(*word));
    ASSERT_TRUE(constraint.accept(token));
  }
}

TEST(GrammarCache, masks_count_though_they_came_later) {
  constexpr int kNumGrammars = 200;
  GrammarCache cache(kLimits);
  const std::shared_ptr<const grammar::Vocabulary> vocabulary = demo_vocabulary();
  int64_t num_mask_bytes = 0;
  for (int i = 0; i < kNumGrammars; ++i) {
    const std::string pattern = "[a-z]{30}" + std::to_string(i);
    const CompiledForm form = compiled_regex(pattern);
    cache.add("alice", pattern, form);
    const GrammarPtr& grammar = std::get<GrammarPtr>(form);
    write_some(*grammar->new_constraint(vocabulary), vocabulary->size());
    num_mask_bytes += grammar->mask_bytes();
  }
  ASSERT_GT(num_mask_bytes, 2 * kLimits.max_bytes);
  cache.add("alice", "(", refused_as("no end"));
  EXPECT_LE(cache.num_bytes(), kLimits.max_bytes);
  EXPECT_FALSE(cache.find("alice", "[a-z]{30}0").has_value());
}

TEST(GrammarCache, what_requests_hold_counts_until_they_are_over) {
  GrammarCache cache({.max_bytes = 1 << 20, .max_bytes_in_use = 4 << 20});
  std::vector<CompiledForm> held;
  for (int i = 0; cache.has_room("alice"); ++i) {
    ASSERT_LT(i, 100);
    const std::string pattern(10'000 + static_cast<size_t>(i), 'a');
    held.push_back(compiled_regex(pattern));
    cache.add("alice", pattern, held.back());
  }
  EXPECT_GT(held.size(), 4u);
  EXPECT_TRUE(cache.has_room("bob"));
  held.clear();
  EXPECT_TRUE(cache.has_room("alice"));
}

TEST(GrammarCache, items_of_a_body_share_a_form_and_its_constraints) {
  const ConstraintFactory factory(demo_config());
  api::GenerationRequest request;
  request.items = {item_of("a"), item_of("b"), {}, item_of("a")};
  request.items.push_back(request.items[1]);
  const WantedForms wanted = factory.forms_of(request);
  EXPECT_EQ(wanted.forms.size(), 3u);
  EXPECT_EQ(wanted.of_item, (std::vector<size_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(wanted.of(2).key, "");
}

TEST(GrammarCache, the_grammars_of_a_body_are_bounded_together) {
  ConstraintFactory::Config config = demo_config();
  config.max_request_bytes = 100'000;
  ConstraintFactory factory(config);
  api::GenerationRequest request;
  for (int i = 0; i < 100; ++i) request.items.push_back(item_of("a{500}b" + std::to_string(i)));
  WantedForms wanted = factory.forms_of(request);
  std::optional<api::ApiError> error;
  while (!wanted.are_made() && !error) {
    ASSERT_FALSE(factory.find(wanted.next(), ""));
    factory.compile(request, wanted.next(), "");
    error = factory.count_next(wanted);
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, "regex");
  EXPECT_NE(error->message.find("100000 bytes of memory together"), std::string::npos);
  EXPECT_GT(wanted.num_made, 2u);
}

TEST(GrammarCache, what_was_refused_need_not_be_compiled_again) {
  ConstraintFactory factory(demo_config());
  api::GenerationRequest request;
  request.items.push_back(item_of("(a"));
  WantedForm first = factory.forms_of(request).of(0), again = first, bobs = first;
  ASSERT_FALSE(factory.find(first, "alice"));
  factory.compile(request, first, "alice");
  EXPECT_FALSE(factory.find(bobs, "bob"));
  ASSERT_TRUE(factory.find(again, "alice"));
  EXPECT_EQ(std::get<api::ApiError>(factory.make(first)).message,
            std::get<api::ApiError>(factory.make(again)).message);
}

}  // namespace
}  // namespace fathom::answer
