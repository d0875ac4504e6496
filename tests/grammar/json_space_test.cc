// White space between the tokens of JSON: the usual forms, and those that a pattern says.
#include <gtest/gtest.h>

#include <string>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

constexpr char kPair[] =
    R"({"type":"object","properties":{"a":{"type":"array"},"b":{}},"required":["a","b"]})";

bool takes_with(const std::optional<std::string>& space, const std::string& text,
                const std::string& schema = kPair) {
  static const TestVocabulary single_bytes = make_vocabulary(byte_tokens());
  const auto constraint =
      compiled(json_schema(schema, {.space = space}))->new_constraint(single_bytes.vocabulary);
  for (const char c : text) {
    if (!constraint->accept(static_cast<uint8_t>(c))) return false;
  }
  return constraint->accept(single_bytes.eos);
}

std::string refusal_of_space(const std::string& pattern) {
  const auto grammar = compile(json_schema(kPair, {.space = pattern}));
  return grammar ? "" : grammar.error().message;
}

TEST(JsonSpace, usual_forms_are_taken) {
  for (const char* text :
       {R"({"a":[1,2],"b":1})", R"({"a": [1, 2], "b": 1})", R"({ "a" : [ 1 , 2 ] , "b" : 1 })",
        "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": 1\n}",
        "{\n\t\"a\": [\n\t\t1\n\t],\n\t\"b\": 1\n}", "{\n\"a\":[\n1\n]\n,\"b\":1\n}"}) {
    // A line break before a comma is in no usual form.
    EXPECT_EQ(takes_with(std::nullopt, text), std::string(text).find("\n,") == std::string::npos)
        << text;
  }
  for (const char* text :
       {"{\"a\":  [],\"b\":1}", "{\t\"a\":[],\"b\":1}", "{\n \t\"a\":[],\"b\":1}",
        "{\"a\":[]  ,\"b\":1}", " {\"a\":[],\"b\":1}", "{\"a\":[],\"b\":1} "}) {
    EXPECT_FALSE(takes_with(std::nullopt, text)) << text;
  }
  const std::string indented = "{\n" + std::string(16, '\t') + "\"a\":[],\"b\":1}";
  EXPECT_TRUE(takes_with(std::nullopt, indented));
  EXPECT_FALSE(takes_with(std::nullopt, "{\n\t" + indented.substr(2)));
}

TEST(JsonSpace, holds_in_values_without_a_schema_and_in_listed_ones) {
  EXPECT_TRUE(takes_with(std::nullopt, "{\"x\" : [1 , {\n\t\"y\": 2\n}]}", "{}"));
  EXPECT_TRUE(takes_with(std::nullopt, "{\"x\" : [1 , 2]}", R"({"enum":[{"x":[1,2]}]})"));
  EXPECT_TRUE(takes_with("", R"({"x":[1,2]})", R"({"enum":[{"x":[1,2]}]})"));
  EXPECT_FALSE(takes_with("", R"({"x": [1,2]})", R"({"enum":[{"x":[1,2]}]})"));
  EXPECT_TRUE(takes_with("", R"({"x":[1,{"y":2}]})", "{}"));
  EXPECT_FALSE(takes_with("", R"({"x":[1, {"y":2}]})", "{}"));
  EXPECT_FALSE(takes_with("", "{\"x\":[1,2]\n}", "{}"));
}

TEST(JsonSpace, a_pattern_says_what_stands_at_each_place) {
  EXPECT_TRUE(takes_with("", R"({"a":[1,2],"b":1})"));
  EXPECT_FALSE(takes_with("", R"({"a":[1, 2],"b":1})"));
  EXPECT_FALSE(takes_with("", R"({"a": [1,2],"b":1})"));
  EXPECT_TRUE(takes_with(" ", R"({ "a" : [ 1 , 2 ] , "b" : 1 })"));
  EXPECT_FALSE(takes_with(" ", R"({ "a" : [ 1 , 2 ] , "b": 1 })"));
  for (const char* pattern : {"[\\n\\t ]*", "\\s*", "(\\s|\\n)*"}) {
    EXPECT_TRUE(takes_with(pattern, "{\n\n\t \"a\"\n:  [1\t,2],\"b\":1}")) << pattern;
    EXPECT_FALSE(takes_with(pattern, "{\f\"a\":[],\"b\":1}")) << pattern;
  }
  EXPECT_TRUE(takes_with("[ ]?", R"({"a": [],"b" :1})"));
  EXPECT_FALSE(takes_with("[ ]?", R"({"a":  [],"b":1})"));
}

TEST(JsonSpace, a_pattern_of_anything_else_is_refused) {
  for (const char* pattern : {"a", "[ab]*", ".*", "\\f", "x?"}) {
    EXPECT_NE(refusal_of_space(pattern).find("white space of JSON"), std::string::npos)
        << pattern << ": " << refusal_of_space(pattern);
  }
  EXPECT_NE(refusal_of_space("(").find("the pattern of white space"), std::string::npos)
      << refusal_of_space("(");
}

TEST(JsonSpace, json_objects_have_it_too) {
  const auto constraint = compiled(json_object({.space = ""}))
                              ->new_constraint(make_vocabulary(byte_tokens()).vocabulary);
  for (const char c : std::string(R"({"a":)"))
    EXPECT_TRUE(constraint->accept(static_cast<uint8_t>(c)));
  EXPECT_FALSE(constraint->clone()->accept(' '));
  EXPECT_TRUE(constraint->accept('1'));
}

}  // namespace
}  // namespace fathom::grammar::tests
