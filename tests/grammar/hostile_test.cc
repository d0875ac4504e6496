#include <gtest/gtest.h>

#include <string>

#include "tests/cpu_time.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

void expect_error_in_time(const Expression& expression, const std::string& what) {
  const CpuStopwatch watch;
  const auto grammar = compile(expression);
  EXPECT_FALSE(grammar) << what;
  EXPECT_LT(watch.seconds(), 1.5) << what;
  if (grammar) return;
  EXPECT_LT(grammar.error().message.size(), 400u) << what;
}

// Either outcome is fine, within the time; a compiled one gives a mask.
void expect_end_in_time(const Expression& expression, const std::string& what) {
  const CpuStopwatch watch;
  const auto grammar = compile(expression);
  EXPECT_LT(watch.seconds(), 1.5) << what;
  if (!grammar) return;
  const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto constraint = (*grammar)->new_constraint(bytes.vocabulary);
  const Walk walk = random_walk(*constraint, bytes, 1, 40, 20);
  EXPECT_TRUE(walk.is_complete || walk.num_tokens > 0) << what;
}

TEST(HostileGrammar, nested_groups_are_refused) {
  for (const int depth : {33, 60'000}) {
    const std::string groups = repeated("(", depth) + "a" + repeated(")", depth);
    expect_error_in_time(regex(groups), "regex");
    expect_error_in_time(regex(repeated("(?:", depth)), "open groups");
    expect_error_in_time(ebnf("root ::= " + groups), "ebnf");
    expect_error_in_time(
        json_schema(repeated(R"({"items":)", 4 * depth) + "{}" + repeated("}", 4 * depth)),
        "schema");
    expect_error_in_time(
        json_schema(repeated(R"({"not":)", 3 * depth) + "{}" + repeated("}", 3 * depth)), "not");
    expect_error_in_time(json_schema(repeated("[", depth)), "brackets");
    expect_error_in_time(json_schema(R"({"type":"string","pattern":")" + groups + "\"}"),
                         "pattern");
  }
}

TEST(HostileGrammar, repetitions_of_repetitions_are_refused) {
  expect_error_in_time(regex("x{1,1000}{1,1000}"), "two quantifiers");
  expect_error_in_time(regex("(x{1,1000}){1,1000}"), "nested");
  expect_error_in_time(regex("((((x{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}"), "deep");
  expect_error_in_time(regex("(((){1,100000}){1,100000}){1,100000}"), "of nothing");
  expect_error_in_time(ebnf("root ::= (\"x\"{1,1000}){1,1000}"), "ebnf");
  expect_error_in_time(ebnf("root ::= \"x\"" + repeated("*", 60'000)), "stars");
  expect_error_in_time(regex("x{1000000}"), "a large count");
}

TEST(HostileGrammar, ambiguous_patterns_end_in_time) {
  for (const char* pattern :
       {"(a|a)*b", "(a*)*b", "(a|b)*a(a|b){12}", "(.*a){20}b", "(x{0,300}){0,300}",
        ".*.*.*.*.*.*=.*", "(a?){500}a{500}", "([ab]*a[ab]{500}|[ab]*b[ab]{500})*"}) {
    expect_end_in_time(regex(pattern), pattern);
  }
  std::string words = "root ::= ";
  for (int i = 0; i < 6000; ++i) words += "\"" + std::to_string(i * 7919) + "\" | ";
  expect_end_in_time(ebnf(words + "\"end\""), "alternation");
  expect_end_in_time(ebnf("root ::= root root | \"a\" | \"\""), "ambiguous rules");
  expect_end_in_time(ebnf("root ::= \"(\" root \")\" | \"(\" root \"]\" | \"x\""), "two closings");
}

// Texts as long as one may be, of what takes most time for its length.
TEST(HostileGrammar, texts_of_the_largest_size_end_in_time) {
  constexpr auto kSize = static_cast<int>(Limits{}.max_source_bytes);
  const auto filled = [](const std::string& before, const std::string& part,
                         const std::string& after) {
    const auto room = static_cast<size_t>(kSize) - before.size() - after.size();
    return before + repeated(part, static_cast<int>(room / part.size())) + after;
  };
  expect_end_in_time(regex(filled("", "a?", "")), "optional characters");
  expect_end_in_time(regex(filled("(", "ab|", "c)*d")), "a loop of many ways");
  expect_end_in_time(regex(filled("", "[^a]*", "b")), "many loops");
  expect_end_in_time(regex(filled("", "\\S{9}", "")), "large classes");
  expect_end_in_time(ebnf(filled("root ::= ", "root | ", "\"a\"")), "left recursion");
  expect_end_in_time(ebnf(filled("root ::= ", "x ", "\nx ::= \"a\"?")), "empty rules");
  expect_end_in_time(ebnf(filled("root ::= \"a\"", " \n", "")), "white space");
  expect_end_in_time(ebnf(filled("root ::= \"a\" ", "#\n", "")), "comments");
  expect_end_in_time(json_schema(filled(R"({"anyOf":[)", R"({"type":"string"},)", "true]}")),
                     "anyOf");
  expect_end_in_time(json_schema(filled(R"({"oneOf":[)", R"({"minLength":9},)", "true]}")),
                     "oneOf");
  expect_end_in_time(json_schema(filled(R"({"allOf":[)", R"({"pattern":"a.*b"},)", "true]}")),
                     "allOf");
  expect_end_in_time(json_schema(filled(R"({"not":{"enum":[)", R"("ab",)", "0]}}")), "not");
  expect_end_in_time(json_schema(filled(R"({"required":[)", R"("ab",)", R"("a"]})")), "required");
}

TEST(HostileGrammar, large_schemas_end_in_time) {
  std::string values = "[\"x\"", properties, optional_schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 5000; ++i) values += ",\"value" + std::to_string(i) + "\"";
  expect_end_in_time(json_schema(R"({"enum":)" + values + "]}"), "enum");
  for (int i = 0; i < 5001; ++i) {
    properties += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  }
  expect_error_in_time(json_schema(optional_schema + properties + "}}"), "5,001 properties");
  properties.clear();
  for (int i = 0; i < 4000; ++i) {
    properties += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  }
  expect_end_in_time(json_schema(optional_schema + properties + "}}"), "4,000 optional properties");
  expect_error_in_time(json_schema(repeated(" ", 262'145)), "long source");
  std::string all_of =
      R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})";
  expect_error_in_time(json_schema(all_of), "allOf that contains itself");
  std::string doubling = R"({"$defs":{"a0":{"type":"integer"})";
  for (int i = 1; i < 300; ++i) {
    const std::string below = R"({"$ref":"#/$defs/a)" + std::to_string(i - 1) + "\"}";
    doubling += ",\"a" + std::to_string(i) + R"(":{"allOf":[)" + below + "," + below + "]}";
  }
  expect_error_in_time(json_schema(doubling + R"(},"$ref":"#/$defs/a299"})"), "doubling");
}

}  // namespace
}  // namespace fathom::grammar::tests
