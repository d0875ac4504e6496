// Members and items that a schema does not speak of: written where JSON schema allows them and nobody said otherwise.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "grammar/tool_calls.h"
#include "tests/grammar/random_walk.h"
#include "tests/grammar/schema_case.h"

namespace fathom::grammar::tests {
namespace {

TEST(UnlistedMembers, follow_the_listed_ones_with_any_value) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"null"}},"required":["a"]})";
  for (const char* text :
       {R"({"a":1})", R"({"a":1,"x":[{"y":null}]})", R"({"a":1,"ab":null,"x":"s","":{}})",
        R"({"a":1,"abc":true,"A":2})", R"({"a":1, "x" : 1 , "y": 2})"}) {
    EXPECT_TRUE(accepts(schema, text)) << text;
  }
  // A listed name comes in its place and with its value, or not at all, however it is written.
  for (const char* text :
       {R"({"x":1})", R"({"x":1,"a":1})", R"({"a":1,"a":2})", R"({"a":1,"x":1,"ab":null})",
        R"({"a":1,"x":1,"ab":2})", R"({"a":1,"ab":2})", R"({"a":1,"\u0061":"s"})",
        R"({"a":1,"x":1,"a\u0062":2})", R"({"a":1,"x":})"}) {
    EXPECT_FALSE(accepts(schema, text)) << text;
  }
}

TEST(UnlistedMembers, are_bound_by_all_that_speaks_of_them) {
  const std::vector<SchemaCase> cases = {
      {R"({"properties":{"a":{}},"additionalProperties":false})", {R"({"a":1})"}, {R"({"x":1})"}},
      {R"({"properties":{"a":{}},"unevaluatedProperties":false})", {R"({"a":1})"}, {R"({"x":1})"}},
      {R"({"properties":{"a":{}},"patternProperties":{"^x":{"type":"null"}}})",
       {R"({"x1":null,"y":1})", R"({"y":1,"x1":null})"},
       {R"({"x1":1})", R"({"y":1,"x1":1})", R"({"\u0078":1})"}},
      {R"({"properties":{"a":{}},"propertyNames":{"pattern":"^[a-c]$"}})",
       {R"({"a":1,"b":2})"},
       {R"({"a":1,"d":2})", R"({"a":1,"bb":2})"}},
      {R"({"properties":{"a":{}},"maxProperties":2})",
       {R"({"a":1,"b":2})", R"({"b":1,"c":2})"},
       {R"({"a":1,"b":2,"c":3})", R"({"b":1,"b":1,"b":1})"}},
      // Two of them may be one member.
      {R"({"properties":{"a":{}},"minProperties":2})",
       {R"({"a":1,"b":2})"},
       {R"({"b":1})", R"({"b":1,"b":1})"}},
      {R"({"properties":{"a":{}},"dependentRequired":{"x":["y"]}})",
       {R"({"a":1,"x":1,"y":1})", R"({"a":1,"y":1,"z":1})"},
       {R"({"a":1,"x":1})", R"({"x":1,"z":1})"}},
      {R"({"properties":{"a":{}},"not":{"required":["x"]}})",
       {R"({"a":1,"y":1})"},
       {R"({"a":1,"x":1})", R"({"x":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"b":{"type":"null"}}}]})",
       {R"({"a":1,"b":null,"c":1})", R"({"b":null})"},
       {R"({"a":"s"})", R"({"c":1,"b":1})", R"({"c":1,"a":1})"}},
      {R"({"oneOf":[{"properties":{"k":{"const":1}},"required":["k"]},{"properties":{"k":{"const":2}},"required":["k"]}]})",
       {R"({"k":1,"x":1})", R"({"k":2,"x":1})"},
       {R"({"k":3})", R"({"x":1,"k":1})"}},
      {R"({"prefixItems":[{"type":"integer"}]})", {"[1,2]", R"([1,"a",{}])", "[]"}, {R"(["a",1])"}},
      {R"({"prefixItems":[{"type":"integer"}],"items":false})", {"[1]"}, {"[1,2]"}}};
  for (const SchemaCase& one : cases) expect_fit(one);
}

TEST(UnlistedMembers, can_be_left_out) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"object"},"l":{"prefixItems":[{}]}}})";
  const std::string listed = R"({"a":{"x":1},"l":[1]})", bare = R"({"a":{},"l":[1]})";
  for (const char* more : {R"({"b":1})", R"({"a":{},"b":1})", R"({"l":[1,2]})"}) {
    EXPECT_TRUE(takes_all(json_schema(schema), more)) << more;
    EXPECT_FALSE(takes_all(json_schema(schema, {.unlisted = Unlisted::kLeftOut}), more)) << more;
    EXPECT_FALSE(takes_all(json_schema(schema, {.unlisted = Unlisted::kNowhere}), more)) << more;
  }
  EXPECT_TRUE(takes_all(json_schema(schema, {.unlisted = Unlisted::kLeftOut}), listed));
  EXPECT_FALSE(takes_all(json_schema(schema, {.unlisted = Unlisted::kNowhere}), listed));
  EXPECT_TRUE(takes_all(json_schema(schema, {.unlisted = Unlisted::kNowhere}), bare));
  // What the schema says holds everywhere.
  const std::string open = R"({"properties":{"a":{}},"additionalProperties":{"type":"integer"}})";
  EXPECT_TRUE(takes_all(json_schema(open, {.unlisted = Unlisted::kNowhere}), R"({"b":1})"));
}

TEST(UnlistedMembers, are_no_arguments_of_a_function) {
  const std::vector<Tool> tools = {
      {"f", R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"}};
  const ToolCallSyntax syntax{
      .section_begin = {"<", -1},
      .section_end = {">", -1},
      .call_begin = {"", -1},
      .steps = {{.kind = ToolCallStep::Kind::kName}, {.kind = ToolCallStep::Kind::kObject}}};
  const Expression call = tool_calls(syntax, tools, {.required = true});
  EXPECT_TRUE(takes_all(call, R"(<f{"a":1}>)"));
  EXPECT_FALSE(takes_all(call, R"(<f{"a":1,"b":2}>)"));
}

}  // namespace
}  // namespace fathom::grammar::tests
