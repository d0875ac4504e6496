#include "base/json_members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json_scanner.h"
#include "tests/sanitized.h"

namespace fathom::json {
namespace {

std::string problem_of(std::string_view text, const Limits& limits = {}) {
  const Result<Members> members = Members::scan(text, limits);
  return members ? "" : members.error().message;
}

TEST(JsonMembers, are_built_when_asked_for) {
  const std::string text = R"( {"a": [1, {"b": null}], "c": "x", "d\u0065": -1.5e3, "": {}} )";
  Result<Members> members = Members::scan(text);
  ASSERT_TRUE(members) << members.error().message;
  EXPECT_EQ(members->size(), 4u);
  const Value* const a = members->find("a").value();
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(dump(*a), R"([1,{"b":null}])");
  EXPECT_EQ(members->find("a").value(), a) << "built twice";
  EXPECT_EQ(*members->find("c").value(), "x");
  EXPECT_EQ(*members->find("de").value(), -1500.0);
  EXPECT_EQ(*members->find("").value(), Value::object());
  EXPECT_EQ(members->find("x").value(), nullptr);
}

TEST(JsonMembers, refuse_names_that_come_twice) {
  EXPECT_NE(problem_of(R"({"a":1,"b":2,"a":3})").find("duplicate key \"a\""), std::string::npos);
  EXPECT_NE(problem_of(R"({"a":1,"\u0061":3})").find("duplicate key \"a\""), std::string::npos);
  const std::string text = R"({"a":{"x":1,"x":2},"b":{"x":1,"x":2}})";
  Result<Members> members = Members::scan(text);
  ASSERT_TRUE(members) << "nobody has asked for a or b";
  const Result<const Value*> a = members->find("a");
  ASSERT_FALSE(a);
  EXPECT_NE(a.error().message.find("duplicate key \"x\""), std::string::npos);
}

TEST(JsonMembers, broken_text_is_refused_wherever_it_is_in_the_words_of_parse) {
  for (const char* text : {"",
                           "{",
                           "{\"a\":1",
                           "{\"a\":[1,]}",
                           "{\"a\":1,}",
                           "{,}",
                           "{\"a\" 1}",
                           "{\"a\":01}",
                           "{\"a\":+1}",
                           "{\"a\":.5}",
                           "{\"a\":1.}",
                           "{\"a\":1e}",
                           "{\"a\":nul}",
                           "{\"a\":\"\xff\"}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\n\"}",
                           "{} x",
                           "{}{}",
                           "{\"a\":[}]}",
                           "{\"a\":{]}",
                           "{a:1}",
                           "{\"a\":\"",
                           "{\"a\":tru}",
                           "{\n \"a\": nope}"}) {
    const Result<Value> parsed = parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(problem_of(text), parsed.error().message) << text;
  }
  EXPECT_EQ(problem_of("[1, 2]"), "not a JSON object");
  EXPECT_EQ(problem_of("\"x\""), "not a JSON object");
  EXPECT_EQ(problem_of(std::string("{\"a\":1}\0", 8)),
            parse(std::string("{\"a\":1}\0", 8)).error().message);
}

TEST(JsonMembers, numbers_are_doubles) {
  for (const char* text : {"{\"x\": 0,\n \"a\": 1e999}", "{\"a\":-1e309}"})
    EXPECT_EQ(problem_of(text), parse(text).error().message);
  EXPECT_EQ(problem_of("{\"a\":1e-999,\"b\":0e999,\"c\":0.00000001e310}"), "");
  EXPECT_EQ(problem_of("{\"a\":1" + std::string(400, '0') + "}").substr(0, 14), "not valid JSON");
}

TEST(JsonMembers, are_no_deeper_than_allowed) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<size_t>(depth) - 1, '[') +
           std::string(static_cast<size_t>(depth) - 1, ']') + "}";
  };
  const std::string deepest = nested(64);
  Result<Members> members = Members::scan(deepest);
  ASSERT_TRUE(members);
  EXPECT_TRUE(members->find("a"));
  EXPECT_NE(problem_of(nested(65)).find("nesting deeper than 64"), std::string::npos);
  EXPECT_FALSE(Members::scan("{\"a\":" + std::string(10'000'000, '[')));
}

TEST(JsonMembers, what_is_built_is_bounded_and_what_is_not_costs_nothing) {
  std::string list = "[";
  for (int i = 0; i < 10'000; ++i) list += "[],";
  list += "0]";
  const std::string text = "{\"a\":" + list + ",\"b\":" + list + ",\"c\":[1,2,3]}";
  Result<Members> members = Members::scan(text, {.max_value_bytes = 100'000});
  ASSERT_TRUE(members) << members.error().message;
  EXPECT_TRUE(members->find("c"));
  const Result<const Value*> a = members->find("a");
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code, ErrorCode::kTooLong);
  EXPECT_EQ(parse(text, {.max_value_bytes = 100'000}).error().code, ErrorCode::kTooLong);
  EXPECT_TRUE(parse(text, {.max_value_bytes = 10'000'000}));
  // The members themselves count, too.
  std::string many = "{\"k\":0";
  for (int i = 0; i < 10'000; ++i) many += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(Members::scan(many + "}", {.max_value_bytes = 100'000}).error().code,
            ErrorCode::kTooLong);
}

// Mutations of good texts: the scanner takes what the library takes.
TEST(JsonScanner, agrees_with_the_parser_on_mutated_texts) {
  const std::vector<std::string> seeds = {
      R"({"a":[1,-2.5e+10,0,true,false,null],"b":{"c":"\u00e9\ud83d\ude00\n\\"},"d":""})",
      "{\"\xC3\xA9\":\"\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80\",\"x\":[[],{},[{}]]}",
      " { \"k\" : [ 1 , 2 ] , \"m\" : { \"n\" : 1E-2 } } "};
  const std::string alphabet = std::string("{}[],:\"\\u0123456789eE+-.truefalsn dD8aF \n\t") +
                               "\xC3\xA9\xE2\x82\xED\xA0\xF0\x9F\xF4\x90\x80\xBF\x01\x7f";
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int num_accepted = 0;
  const int num_texts = kIsSanitized ? 20'000 : 200'000;
  for (int i = 0; i < num_texts; ++i) {
    std::string text = seeds[below(seeds.size())];
    const size_t num_edits = 1 + below(3);
    for (size_t edit = 0; edit < num_edits && !text.empty(); ++edit) {
      const size_t at = below(text.size());
      const char c = alphabet[below(alphabet.size())];
      switch (below(4)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + below(3));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(8)));
      }
    }
    const bool is_accepted = Scanner(text, 64).skip_whole();
    num_accepted += is_accepted ? 1 : 0;
    Result<Members> members = Members::scan(text);
    const Result<Value> whole = parse(text);
    ASSERT_EQ(is_accepted, Value::accept(text)) << text;
    if (!whole || !whole->is_object()) continue;
    ASSERT_TRUE(members) << text << ": " << members.error().message;
    for (const auto& [name, value] : whole->items())
      ASSERT_EQ(dump(*members->find(name).value()), dump(value)) << text;
  }
  EXPECT_GT(num_accepted, num_texts / 20) << "too few mutations are well-formed to mean anything";
}

}  // namespace
}  // namespace fathom::json
