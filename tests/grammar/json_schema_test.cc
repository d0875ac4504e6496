#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/random_walk.h"
#include "tests/grammar/schema_case.h"
#include "tests/grammar/schema_validator.h"
#include "tests/sanitized.h"
#include "tests/source_tree.h"
#include "text/tokenizer.h"

namespace fathom::grammar::tests {
namespace {

constexpr int kWalks = 40;
constexpr int kWalksOfSlowBuilds = 4;

int num_walks() { return kIsSanitized ? kWalksOfSlowBuilds : kWalks; }

const TestVocabulary& demo_vocabulary() {
  static const TestVocabulary vocabulary = [] {
    const auto tokenizer = text::Tokenizer::load(source_path("models/demo")).value();
    std::vector<std::string> texts;
    for (int id = 0; id < tokenizer.vocab_size(); ++id) {
      texts.emplace_back(tokenizer.is_special(id) ? "" : tokenizer.token_bytes(id));
    }
    return make_vocabulary(std::move(texts));
  }();
  return vocabulary;
}

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> all = {
      R"({})",
      R"(true)",
      R"({"type":"object"})",
      R"({"type":"string"})",
      R"({"type":["string","null","integer"]})",
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"boolean"}}})",
      R"({"type":"object","properties":{"a":{"type":"string"},"ab":{"type":"null"}},"required":["ab"],"additionalProperties":{"type":"integer"}})",
      R"({"type":"object","required":["x","y"],"properties":{"y":{"const":[1,{"k":"v"}]}}})",
      R"({"type":"array","items":{"type":"integer","minimum":-7,"maximum":130},"minItems":2,"maxItems":5})",
      R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":{"type":"boolean"},"minItems":1})",
      R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"minItems":3})",
      R"({"type":"array","maxItems":0})",
      R"({"type":"string","minLength":2,"maxLength":5})",
      R"({"type":"string","minLength":70,"maxLength":90})",
      R"({"type":"string","pattern":"^[a-z]{2,4}(-[0-9]+)?$"})",
      R"({"type":"string","pattern":"\\d\\d"})",
      R"({"type":"string","pattern":"^\"|\\\\$"})",
      R"({"type":"number","minimum":0.25,"exclusiveMaximum":12.5})",
      R"({"type":"number","exclusiveMinimum":-1,"maximum":0})",
      R"({"type":"integer","exclusiveMinimum":99,"maximum":12345678901})",
      R"({"type":"integer","minimum":-1200,"maximum":-30})",
      R"({"enum":["red","green",3,null,{"a":[1,2]},"é\n\""]})",
      R"({"type":"string","enum":["red","green",3]})",
      R"({"anyOf":[{"type":"string","maxLength":3},{"type":"object","properties":{"k":{"const":1}},"required":["k"]}]})",
      R"({"type":"object","properties":{"kind":{"type":"string"}},"required":["kind"],"oneOf":[{"properties":{"kind":{"const":"a"}}},{"properties":{"kind":{"const":"b"},"n":{"type":"integer"}},"required":["n"]}]})",
      R"({"oneOf":[{"type":"string","maxLength":3},{"type":"integer"},{"type":"null"},{"type":"array","items":{"type":"boolean"}}]})",
      R"({"oneOf":[{"$ref":"#/$defs/cat"},{"$ref":"#/$defs/dog"}],"discriminator":{"propertyName":"pet"},"$defs":{"cat":{"type":"object","properties":{"pet":{"const":"cat"},"lives":{"type":"integer"}},"required":["pet"]},"dog":{"type":"object","properties":{"pet":{"enum":["dog","wolf"]},"lives":{"type":"integer"}},"required":["pet","lives"]}}})",
      R"({"oneOf":[{"properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},{"properties":{"b":{"type":"integer"}},"required":["b"],"additionalProperties":false}]})",
      R"({"oneOf":[{"type":"object","properties":{"at":{"type":"object","properties":{"k":{"const":1}},"required":["k"]}},"required":["at"]},{"type":"object","properties":{"at":{"type":"object","properties":{"k":{"const":2}},"required":["k"]}},"required":["at"]}]})",
      R"({"type":"array","items":{"oneOf":[{"const":1},{"enum":["x",2.5]},{"type":"boolean"}]},"maxItems":4})",
      R"({"allOf":[{"type":"string","nullable":true,"maxLength":3},{"type":["string"]}]})",
      R"({"type":"object","additionalProperties":{"type":"integer","minimum":3}})",
      R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]},{"properties":{"b":{"type":"string"},"a":{"maximum":9}},"required":["b"]}]})",
      R"({"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
      R"({"type":"object","properties":{"tags":{"type":"array","items":{"$ref":"#/definitions/tag"}},"nested":{"type":"object","properties":{"deep":{"type":"array","items":{"type":"array","items":{"type":"boolean"}}}},"required":["deep"]}},"required":["tags","nested"],"definitions":{"tag":{"enum":["x","y"]}}})",
      R"({"type":"array","items":{"$ref":"#"},"maxItems":2})",
      R"({"type":"string","nullable":true,"maxLength":2})",
      R"({"type":"object","properties":{"when":{"type":"string","format":"date-time"},"id":{"type":"string","format":"uuid"},"mail":{"type":"string","format":"email"}},"required":["when","id","mail"]})",
      R"({"type":"string","pattern":"^[a-c]*$","minLength":2,"maxLength":4})",
      R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b","maxLength":6}]})",
      R"({"type":"string","not":{"pattern":"^[a-z]"},"minLength":1,"maxLength":5})",
      R"({"type":"string","not":{"enum":["a","ab",""]}})",
      R"({"type":"integer","multipleOf":7,"minimum":-100,"maximum":1000})",
      R"({"type":"number","multipleOf":0.25,"exclusiveMinimum":0})",
      R"({"type":"number","not":{"type":"integer"}})",
      R"({"type":"number","not":{"multipleOf":3},"minimum":-20,"maximum":99})",
      R"({"oneOf":[{"type":"integer","multipleOf":3},{"type":"integer","multipleOf":5}]})",
      R"({"type":"integer","not":{"enum":[0,1,-5]},"minimum":-9,"maximum":12})",
      R"({"type":"array","items":{"enum":["a","b",1]},"uniqueItems":true,"minItems":1})",
      R"({"type":"array","items":{"type":["string","null"]},"contains":{"const":"x"},"maxItems":4})",
      R"({"type":"array","items":{"enum":[1,2,3]},"contains":{"minimum":2},"minContains":1,"maxContains":2})",
      R"({"type":"array","not":{"items":{"type":"string"}},"maxItems":3})",
      R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":3}},"additionalProperties":{"type":"null"}})",
      R"({"type":"object","properties":{"xa":{"maximum":9}},"patternProperties":{"^x":{"type":"integer"}},"additionalProperties":false})",
      R"({"type":"object","propertyNames":{"pattern":"^[a-z]{1,3}$"},"properties":{"ab":{},"ABC":{}},"additionalProperties":{"type":"boolean"}})",
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"minProperties":2,"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":1,"maxProperties":2,"additionalProperties":{"type":"integer"}})",
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"dependencies":{"a":["b"],"b":["c"]},"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"oneOf":[{"required":["a"]},{"required":["b","c"]}],"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"not":{"required":["a","b"]},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
      R"({"type":"object","properties":{"k":{"enum":["a","b"]},"n":{"type":"integer"}},"required":["k"],"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["n"]},"else":{"properties":{"n":false}},"additionalProperties":false})",
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"dependencies":{"a":{"properties":{"b":{"maxLength":2}},"required":["b"]}},"additionalProperties":false})",
      R"({"oneOf":[{"type":"integer","minimum":3},{"type":"integer","maximum":5}]})",
      R"({"oneOf":[{"type":"string"},{"type":"string","maxLength":3},{"type":"null"}]})",
      R"({"allOf":[{"properties":{"a":{}},"additionalProperties":{"type":"integer"}},{"properties":{"b":{}},"additionalProperties":{"maximum":7}}]})",
      R"({"title":"T","description":"d","default":1,"examples":[1],"$schema":"s","type":"integer"})"};
  return all;
}

TEST(JsonSchema, random_outputs_satisfy_their_schema) {
  int num_complete = 0;
  for (const std::string& schema_text : schemas()) {
    SCOPED_TRACE(schema_text);
    const json::Value schema = json::Value::parse(schema_text);
    const auto grammar = compiled(json_schema(schema_text));
    for (int seed = 0; seed < num_walks(); ++seed) {
      const auto constraint = grammar->new_constraint(demo_vocabulary().vocabulary);
      const Walk walk =
          random_walk(*constraint, demo_vocabulary(), static_cast<uint64_t>(seed), 400, 20);
      if (!walk.is_complete) continue;
      ++num_complete;
      const json::Value value = json::Value::parse(walk.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << "seed " << seed << ": " << walk.text;
      ASSERT_EQ(violation(schema, schema, value), "") << "seed " << seed << ": " << walk.text;
    }
  }
  EXPECT_GT(num_complete, static_cast<int>(schemas().size()) * num_walks() / 2);
}

TEST(JsonSchema, json_object_gives_objects) {
  const auto grammar = compiled(json_object());
  int num_complete = 0;
  for (int seed = 0; seed < num_walks(); ++seed) {
    const auto constraint = grammar->new_constraint(demo_vocabulary().vocabulary);
    const Walk walk =
        random_walk(*constraint, demo_vocabulary(), static_cast<uint64_t>(seed), 400, 20);
    if (!walk.is_complete) continue;
    ++num_complete;
    EXPECT_TRUE(json::Value::parse(walk.text, nullptr, false).is_object()) << walk.text;
  }
  EXPECT_GT(num_complete, 0);
}

TEST(JsonSchema, takes_the_texts_that_models_write) {
  const std::string person =
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"]})";
  EXPECT_TRUE(accepts(person, R"({"name":"Ann","age":3})"));
  EXPECT_TRUE(accepts(person, R"({"name": "Ann", "age": 3})"));
  EXPECT_TRUE(accepts(person, "{\n  \"name\": \"Ann\",\n  \"age\": 3\n}"));
  EXPECT_TRUE(accepts(person, R"({"name":"A\u00e9\ud83d\ude00\n"})"));
  EXPECT_FALSE(accepts(person, R"({"name":"A\ud83d"})"));
  EXPECT_FALSE(accepts(person, R"({"age":3})"));
  EXPECT_FALSE(accepts(person, R"({"age":3,"name":"Ann"})"));
  EXPECT_TRUE(accepts(person, R"({"name":"Ann","x":1})"));
  EXPECT_FALSE(accepts(person, R"({"name":"Ann",})"));
  EXPECT_FALSE(accepts(person, R"({"name":  "Ann"})"));
}

TEST(JsonSchema, free_members_cannot_take_a_listed_name) {
  const std::string schema =
      R"({"type":"object","properties":{"ab":{"type":"null"}},"additionalProperties":{"type":"integer"}})";
  EXPECT_TRUE(accepts(schema, R"({"a":1,"abc":2,"":3})"));
  EXPECT_TRUE(accepts(schema, R"({"ab":null,"b":2})"));
  EXPECT_FALSE(accepts(schema, R"({"ab":1})"));
  EXPECT_FALSE(accepts(schema, R"({"\u0061b":1})"));
}

TEST(JsonSchema, one_of_is_written_without_what_fits_two_branches) {
  const std::vector<SchemaCase> cases = {
      {R"({"oneOf":[{"type":"string"},{"type":"string","maxLength":3}]})",
       {"\"abcd\""},
       {"\"abc\"", "1"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1.5"}, {"1", "1.0"}},
      {R"({"oneOf":[{"const":1},{"type":"number"}]})", {"2", "1.5"}, {"1", "1.0"}},
      {R"({"oneOf":[{"const":1.0},{"enum":[2,1]}]})", {"2"}, {"1", "1.0"}},
      {R"({"oneOf":[{},{"type":"null"}]})", {"1", "[null]"}, {"null"}},
      {R"({"oneOf":[{"type":["string","null"]},{"type":["integer","null"]}]})",
       {"\"a\"", "3"},
       {"null"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}}},{"type":"object","properties":{"k":{"const":"b"}}}]})",
       {R"({"k":"a"})", R"({"k":"b"})"},
       {"{}", R"({"k":"c"})"}},
      {R"({"type":"object","oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"oneOf":[{"type":"array","items":{"const":1}},{"type":"array","items":{"const":2}}]})",
       {"[1]", "[2,2]"},
       {"[]", "[1,2]"}},
      {R"({"oneOf":[{"anyOf":[{"type":"string"},{"type":"null"}]},{"type":"null"}]})",
       {"\"\""},
       {"null"}}};
  for (const SchemaCase& one : cases) expect_fit(one);
  // What cannot be excluded is refused.
  for (const std::string schema :
       {R"({"oneOf":[{"type":"string","format":"uri"},{"type":"string"}]})",
        R"({"oneOf":[{"type":"array","uniqueItems":true},{"type":"array","minItems":2}]})"}) {
    EXPECT_NE(refusal(schema).find("\"oneOf\""), std::string::npos)
        << schema << " -> " << refusal(schema);
    EXPECT_NE(refusal(schema).find("use \"anyOf\""), std::string::npos) << schema;
  }
  EXPECT_NE(
      refusal(
          R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}})"),
      "");
  // Behind references that never end, and in many branches.
  EXPECT_NE(refusal(R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"oneOf":[{"$ref":"#/$defs/a"},{}]})"),
            "");
  std::string many = R"({"oneOf":[)";
  for (int i = 0; i < 300; ++i)
    many += (i > 0 ? "," : "") + (R"({"const":)" + std::to_string(i) + "}");
  EXPECT_EQ(refusal(many + "]}"), "");
}

TEST(JsonSchema, branches_that_ask_nothing_take_any_value) {
  for (const char* schema :
       {R"({"anyOf":[{}]})", R"({"oneOf":[true]})", R"({"anyOf":[{"description":"any"},{}]})",
        R"({"if":{},"then":{"title":"any"}})", R"({"anyOf":[{"required":["a"]},{}]})"}) {
    for (const char* text : {"3", "\"x\"", "null", "[1]", "{\"a\": 1}"})
      EXPECT_TRUE(accepts(schema, text)) << schema << " " << text;
  }
  EXPECT_FALSE(accepts(R"({"anyOf":[{"required":["a"]}]})", "3"));
}

TEST(JsonSchema, all_of_keeps_every_part) {
  // Items of the one part are the prefix of the other.
  const std::string items =
      R"({"allOf":[{"type":"array","prefixItems":[{"type":["string","integer"]}]},{"items":{"minimum":7}}]})";
  EXPECT_TRUE(accepts(items, "[7,8]"));
  EXPECT_TRUE(accepts(items, "[\"a\",9]"));
  EXPECT_FALSE(accepts(items, "[7,6]"));
  const std::string nullable = R"({"allOf":[{"type":"string","nullable":true},{"type":"string"}]})";
  EXPECT_FALSE(accepts(nullable, "null"));
  EXPECT_TRUE(accepts(nullable, "\"a\""));
}

TEST(JsonSchema, unevaluated_members_are_those_that_no_part_speaks_of) {
  const std::string schema =
      R"({"if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"properties":{"b":{}},"required":["b"]},"else":{"properties":{"c":{}},"required":["c"]},"unevaluatedProperties":false})";
  EXPECT_TRUE(accepts(schema, R"({"a":1,"b":2})"));
  EXPECT_FALSE(accepts(schema, R"({"a":1,"b":2,"c":3})"));
  EXPECT_TRUE(accepts(schema, R"({"c":3})"));
  EXPECT_FALSE(accepts(schema, R"({"a":2,"c":3})"));
  const std::string parts =
      R"({"allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},"unevaluatedProperties":{"type":"null"}})";
  EXPECT_TRUE(accepts(parts, R"({"b":1,"a":2,"c":null})"));
  EXPECT_FALSE(accepts(parts, R"({"c":1})"));
}

TEST(JsonSchema, further_members_follow_their_schema_however_often_they_come) {
  const std::string schema = R"({"type":"object","additionalProperties":{"type":"integer"}})";
  EXPECT_TRUE(accepts(schema, R"({"a":1,"a":2})"));
  EXPECT_FALSE(accepts(schema, R"({"a":1,"a":"x"})"));
  EXPECT_FALSE(accepts(schema, R"({"a":"x","a":1})"));
  // Names that are required, but not described, are written once.
  const std::string required =
      R"({"type":"object","required":["x"],"additionalProperties":{"type":"integer"}})";
  EXPECT_TRUE(accepts(required, R"({"x":1,"y":2})"));
  EXPECT_FALSE(accepts(required, R"({"x":1,"x":2})"));
}

TEST(JsonSchema, integer_bounds_are_exact) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 0}, {-1, 1}, {7, 7}, {-120, 95}, {99, 101}, {10, 2000}, {-1000, -999}}) {
    const std::string schema = R"({"type":"integer","minimum":)" + std::to_string(low) +
                               R"(,"maximum":)" + std::to_string(high) + "}";
    const auto grammar = compiled(json_schema(schema));
    const TestVocabulary bytes = make_vocabulary(byte_tokens());
    for (int value = -2100; value <= 2100; ++value) {
      const auto constraint = grammar->new_constraint(bytes.vocabulary);
      bool fits = true;
      for (const char c : std::to_string(value))
        fits = fits && constraint->accept(static_cast<uint8_t>(c));
      EXPECT_EQ(fits && constraint->accept(bytes.eos), low <= value && value <= high)
          << schema << " " << value;
    }
  }
}

TEST(JsonSchema, decimal_bounds_are_exact) {
  const std::string schema = R"({"type":"number","minimum":-0.5,"exclusiveMaximum":2.25})";
  for (const char* text :
       {"-0.5", "0", "0.0", "2", "2.2", "2.249999", "1.999999", "-0.499999", "-0.50"}) {
    EXPECT_TRUE(accepts(schema, text)) << text;
  }
  for (const char* text :
       {"-0.500001", "2.25", "2.3", "3", "-1", "-0", "1.", ".5", "01", "2.250000"}) {
    EXPECT_FALSE(accepts(schema, text)) << text;
  }
}

TEST(JsonSchema, anchors_may_stand_in_groups_at_the_ends_of_a_pattern) {
  struct Case {
    std::string pattern;
    std::vector<std::string> fitting, others;
  };
  const std::vector<Case> cases = {{"(^a|b)c", {"ac", "acx", "xbc"}, {"xac", "c"}},
                                   {"(^a$)|(^b$)", {"a", "b"}, {"ab", "xa", ""}},
                                   {"^(^a|b)(c$|d)$", {"ac", "bd"}, {"acx", "xac", "bdx"}},
                                   {"x(a$|b)", {"xa", "zxa", "xbz"}, {"xaz"}},
                                   {"((^a|b)|c)d", {"ad", "xbd", "xcdy"}, {"xad"}},
                                   {"(^[(^]|\\\\$b)", {"(", "^z", "x$b"}, {"x(", "b"}},
                                   {"(^|,)a(,|$)", {"a", "a,", "b,a", ",a,"}, {"ba", "ab"}},
                                   {"(^a)?b", {"ab", "b", "xb"}, {"a"}},
                                   {"(a$)*b|(c$)+", {"b", "xb", "c"}, {"cx", "a"}}};
  for (const Case& one : cases) {
    const std::string schema = R"({"type":"string","pattern":")" + one.pattern + "\"}";
    ASSERT_EQ(refusal(schema), "") << schema;
    for (const std::string& text : one.fitting)
      EXPECT_TRUE(accepts(schema, '"' + text + '"')) << schema << text;
    for (const std::string& text : one.others)
      EXPECT_FALSE(accepts(schema, '"' + text + '"')) << schema << text;
  }
}

TEST(JsonSchema, multiples_are_excluded_however_they_are_written) {
  const std::string schema = R"({"type":"number","not":{"multipleOf":0.5}})";
  for (const char* text : {"1", "1.0", "1.50", "0", "0.0", "-2.500"})
    EXPECT_FALSE(accepts(schema, text)) << text;
  for (const char* text : {"1.2", "0.25", "-0.75"}) EXPECT_TRUE(accepts(schema, text)) << text;
  const std::string steps = R"({"type":"number","multipleOf":2.5})";
  for (const char* text : {"5", "5.0", "7.5", "7.50", "0", "-2.5"})
    EXPECT_TRUE(accepts(steps, text)) << text;
  for (const char* text : {"5.5", "1", "2.51", "7.5."}) EXPECT_FALSE(accepts(steps, text)) << text;
}

TEST(JsonSchema, property_ordering_says_the_order_of_members) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"},"c":{}},"required":["a","b"],"propertyOrdering":["c","b"]})";
  for (const char* text : {R"({"c":1,"b":null,"a":1})", R"({"b":null,"a":1})"})
    EXPECT_TRUE(accepts(schema, text)) << text;
  for (const char* text :
       {R"({"a":1,"b":null})", R"({"b":null,"c":1,"a":1})", R"({"b":null,"a":1,"c":1})"})
    EXPECT_FALSE(accepts(schema, text)) << text;
}

TEST(JsonSchema, a_pattern_as_a_value_is_one_in_every_dialect) {
  const std::string schema = R"({"type":"string","format":"regex"})";
  for (const char* text : {R"x("^[a-z]+(\\.[a-z]{2,})*$")x", R"x("(?:a|b)c?")x",
                           R"x("\\d{3}-(x(y|z)*)+")x", R"("")", R"("[^\\]]")"}) {
    EXPECT_TRUE(accepts(schema, text)) << text;
  }
  for (const char* text : {R"x("(a")x", R"x("a)")x", R"("[z-a]")", R"("*a")", R"("a**")",
                           R"("\\q")", R"("a{2,1}")", R"("[]")", R"x("(?<a>b)")x"}) {
    EXPECT_FALSE(accepts(schema, text)) << text;
  }
}

TEST(JsonSchema, counts_of_items_hold_beside_contains) {
  const std::string none = R"({"type":"array","maxItems":0,"contains":{"type":"integer"}})";
  EXPECT_NE(refusal(none).find("no finite"), std::string::npos) << refusal(none);
  const std::string any_number =
      R"({"type":"array","maxItems":0,"contains":{"type":"integer"},"minContains":0,"maxContains":1})";
  EXPECT_TRUE(accepts(any_number, "[]"));
  EXPECT_FALSE(accepts(any_number, "[1]"));
  const std::string prefix =
      R"({"type":"array","prefixItems":[{"type":"integer"},{},{}],"maxItems":2,"contains":{"const":1}})";
  EXPECT_TRUE(accepts(prefix, "[2,1]"));
  EXPECT_TRUE(accepts(prefix, "[1]"));
  EXPECT_FALSE(accepts(prefix, "[1,2,3]"));
  EXPECT_FALSE(accepts(prefix, "[2,2]"));
}

TEST(JsonSchema, refuses_by_name_what_it_cannot_keep) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"integer","multipleOf":1234567})", "multipleOf"},
      {R"({"type":"integer","multipleOf":0})", "multipleOf"},
      {R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", "uniqueItems"},
      {R"({"type":"string","not":{"format":"uri"}})", "not"},
      {R"({"type":"object","not":{"additionalProperties":false}})", "not"},
      {R"({"type":"object","minProperties":2})", "minProperties"},
      {R"({"type":"array","unevaluatedItems":false})", "unevaluatedItems"},
      {R"({"$dynamicRef":"#a"})", "$dynamicRef"},
      {R"({"not":{}})", "no finite"},
      {R"({"not":true})", "no finite"},
      {R"({"type":"object","not":{"required":[]}})", "no finite"},
      {R"({"type":"number","minimum":1e25})", "beyond 10^20"},
      {R"({"type":"integer","maximum":-1e21})", "beyond 10^20"},
      {R"({"type":"string","pattern":"(?=a)b"})", "no finite"},
      {R"x({"type":"string","pattern":"a(?<=(?=b))"})x", "look-behind"},
      {R"({"$ref":"http://example.com/schema"})", "$ref"},
      {R"({"$ref":"#/$defs/missing"})", "does not exist"},
      {R"({"type":"text"})", "type"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no finite"},
      {R"({"type":"number","minimum":1e-20})", "decimals"},
      {R"({"properties":{"a":{"minItems":-1,"type":"array"}}})", "minItems"},
      {R"({"type":"object","properties":{"a":{}},"required":["b"],"additionalProperties":false})",
       "no finite"},
      {R"([1])", "a schema is"},
      {R"({"a")", "not valid JSON"},
      {R"({"$defs":{"a":{"type":"object","properties":{"n":{"$ref":"#/$defs/a"}},"required":["n"]}},"$ref":"#/$defs/a"})",
       "no finite"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})", "no finite"}};
  for (const auto& [schema, word] : cases) {
    EXPECT_NE(refusal(schema).find(word), std::string::npos) << schema << " -> " << refusal(schema);
  }
}

}  // namespace
}  // namespace fathom::grammar::tests
