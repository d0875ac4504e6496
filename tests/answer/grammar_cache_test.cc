#include "answer/grammar_cache.h"

#include <gtest/gtest.h>

#include "answer/constraint_factory.h"
#include "tests/api/demo_served_model.h"

namespace fathom::answer {
namespace {

CompiledForm refused_as(const std::string& message) {
  return api::invalid_parameter("regex", message);
}

CompiledForm compiled_regex(const std::string& pattern) {
  return grammar::compile(grammar::regex(pattern)).value();
}

TEST(GrammarCache, owners_share_nothing) {
  GrammarCache cache(1 << 20);
  cache.add("alice", "a", compiled_regex("a"));
  EXPECT_TRUE(cache.find("alice", "a").has_value());
  EXPECT_FALSE(cache.find("bob", "a").has_value());
  EXPECT_FALSE(cache.find("", "a").has_value());
}

TEST(GrammarCache, refusals_are_kept) {
  GrammarCache cache(1 << 20);
  cache.add("alice", "(", refused_as("no end"));
  const std::optional<CompiledForm> found = cache.find("alice", "(");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::get<api::ApiError>(*found).message, "no end");
}

TEST(GrammarCache, whoever_holds_the_most_makes_room) {
  const std::string large(10'000, 'x');
  GrammarCache cache(100'000);
  cache.add("bob", "b", compiled_regex("b"));
  for (int i = 0; i < 50; ++i) cache.add("alice", std::to_string(i), refused_as(large));
  EXPECT_LE(cache.num_bytes(), 100'000);
  EXPECT_TRUE(cache.find("bob", "b").has_value());
  EXPECT_TRUE(cache.find("alice", "49").has_value());
  EXPECT_FALSE(cache.find("alice", "0").has_value());
}

TEST(GrammarCache, what_was_refused_need_not_be_compiled_again) {
  ConstraintFactory factory({.tokenizer = api::tests::demo_tokenizer(),
                             .vocab_size = api::tests::demo_tokenizer()->vocab_size(),
                             .eos_token_ids = {1}});
  api::GenerationRequest request;
  request.items.push_back({});
  request.items[0].grammar = {
      .kind = api::GrammarSource::Kind::kRegex, .text = "(a", .field = "regex"};
  const std::vector<std::string> sources = factory.sources_of(request);
  ASSERT_TRUE(factory.has_to_compile(sources, "alice"));
  const auto make = [&] {
    return factory.make(request, request.items[0], {.owner = "alice", .source = sources[0]});
  };
  const auto refused = make();
  EXPECT_FALSE(factory.has_to_compile(sources, "alice"));
  EXPECT_TRUE(factory.has_to_compile(sources, "bob"));
  const auto again = make();
  EXPECT_EQ(std::get<api::ApiError>(refused).message, std::get<api::ApiError>(again).message);
}

}  // namespace
}  // namespace fathom::answer
