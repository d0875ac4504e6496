#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

// The definition under that name allows 7 and nothing else; a reference must find it, and none of the others.
void expect_leads_to(const std::string& name, const std::string& reference) {
  const std::string schema = R"({"$defs":{")" + name +
                             R"(":{"const":7},"other":{"const":8}},"$ref":")" + reference + "\"}";
  EXPECT_EQ(refusal(schema), "") << schema;
  EXPECT_TRUE(accepts(schema, "7")) << schema;
  EXPECT_FALSE(accepts(schema, "8")) << schema;
}

TEST(SchemaReferences, are_percent_decoded_before_the_pointer_is_read) {
  expect_leads_to("a b", "#/$defs/a%20b");
  expect_leads_to("a b", "#/%24defs/a%20b");
  expect_leads_to("p%q", "#/$defs/p%25q");
  expect_leads_to("c/d", "#/$defs/c~1d");
  expect_leads_to("c/d", "#/$defs/c%7E1d");
  expect_leads_to("e~f", "#/$defs/e~0f");
  expect_leads_to("~1", "#/$defs/~01");
  expect_leads_to("~1", "#/$defs/%7e01");
  expect_leads_to("\u00e9", "#/$defs/%C3%A9");
  expect_leads_to("\u00e9", "#/$defs/\u00e9");
  expect_leads_to("", "#/$defs/");
  // An encoded slash is a slash of the pointer, not of a name.
  const std::string schema =
      R"({"$defs":{"x":{"y":{"const":7}},"x/y":{"const":8}},"$ref":"#/$defs/x%2Fy"})";
  EXPECT_TRUE(accepts(schema, "7"));
  EXPECT_FALSE(accepts(schema, "8"));
}

TEST(SchemaReferences, lead_to_any_schema_of_the_document) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"anyOf":[{"const":1},{"const":2}]},"b":{"$ref":"#/properties/a/anyOf/1"}},"required":["b"]})";
  EXPECT_TRUE(accepts(schema, R"({"b":2})"));
  EXPECT_FALSE(accepts(schema, R"({"b":1})"));
  EXPECT_TRUE(
      accepts(R"({"prefixItems":[{"const":3},{"$ref":"#/prefixItems/0"}],"minItems":2})", "[3,3]"));
}

TEST(SchemaReferences, that_are_no_pointers_or_lead_nowhere_are_refused_by_name) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"#/$defs/a%2", "hex digits"},
      {"#/$defs/a%zz", "hex digits"},
      {"#/$defs/%ff", "hex digits"},
      {"#/$defs/~2", "does not exist"},
      {"#/$defs/a~", "does not exist"},
      {"#/$defs/list/01", "does not exist"},
      {"#/$defs/list/7", "does not exist"},
      {"#/$defs/list/-", "does not exist"},
      {"#nowhere", "$anchor"},
      {"other.json", "not in this document"},
      {"other.json#/$defs/a", "not in this document"},
      {"", "not in this document"}};
  for (const auto& [reference, word] : cases) {
    const std::string schema =
        R"({"$defs":{"a":{"const":7},"list":[{"const":7}]},"$ref":")" + reference + "\"}";
    EXPECT_NE(refusal(schema).find(word), std::string::npos) << schema << " -> " << refusal(schema);
    EXPECT_NE(refusal(schema).find("\"$ref\""), std::string::npos) << schema;
  }
  EXPECT_NE(refusal(R"({"$ref":3})").find("\"$ref\""), std::string::npos);
}

TEST(SchemaReferences, find_anchors_and_ids_that_are_fragments) {
  for (const char* const key : {R"("$anchor":"seven")", R"("$id":"#seven")"}) {
    const std::string schema =
        R"({"$defs":{"deep":{"items":{)" + std::string(key) + R"(,"const":7}}},"$ref":"#seven"})";
    EXPECT_TRUE(accepts(schema, "7")) << schema;
    EXPECT_FALSE(accepts(schema, "8")) << schema;
  }
  const std::string twice =
      R"({"$defs":{"a":{"$anchor":"x","const":1},"b":{"$anchor":"x","const":2}},"$ref":"#x"})";
  EXPECT_NE(refusal(twice).find("more than one"), std::string::npos) << refusal(twice);
  // What only looks like a schema has no anchor.
  const std::string data = R"({"$defs":{"a":{"const":{"$anchor":"x","const":1}}},"$ref":"#x"})";
  EXPECT_NE(refusal(data).find("does not exist"), std::string::npos) << refusal(data);
}

// Inside, "#" would be the inner schema; a reference from outside may mean it by its name.
TEST(SchemaReferences, do_not_cross_an_id_below_the_root) {
  const std::string inner =
      R"({"$id":"http://example.com/inner","$defs":{"n":{"const":1}},"items":{"$ref":"#/$defs/n"}})";
  const std::vector<std::string> schemas = {
      R"({"$defs":{"n":{"const":2}},"properties":{"a":)" + inner + R"(},"required":["a"]})",
      R"({"$defs":{"n":{"const":2},"in":)" + inner + R"(},"$ref":"#/$defs/in"})",
      R"({"$defs":{"n":{"const":2},"in":)" + inner + R"(},"$ref":"#/$defs/in/items"})",
      R"({"$defs":{"n":{"const":2}},"allOf":[)" + inner + R"(,{"type":"array"}]})",
      R"({"$defs":{"n":{"const":2}},"anyOf":[{"type":"null"},)" + inner + "]}",
      R"({"$defs":{"in":{"$id":"inner","items":{"$anchor":"x","const":1}}},"$ref":"#x"})"};
  for (const std::string& schema : schemas) EXPECT_NE(refusal(schema), "") << schema;
  EXPECT_NE(refusal(schemas[0]).find("\"$id\""), std::string::npos) << refusal(schemas[0]);
  // Where nothing refers to it and it is not part of what is written, it does not matter.
  EXPECT_EQ(refusal(R"({"$defs":{"in":)" + inner + R"(},"type":"integer"})"), "");
}

TEST(SchemaReferences, may_name_the_document_itself) {
  const std::string id = R"({"$id":"http://example.com/list","$defs":{"n":{"const":7}},)";
  EXPECT_TRUE(accepts(id + R"("$ref":"http://example.com/list#/$defs/n"})", "7"));
  EXPECT_TRUE(accepts(
      id + R"("type":"array","items":{"$ref":"http://example.com/list"},"maxItems":1})", "[[]]"));
  EXPECT_NE(refusal(id + R"("$ref":"http://example.com/list2"})"), "");
  EXPECT_TRUE(accepts(id + R"("allOf":[{"$ref":"#/$defs/n"}]})", "7"));
}

TEST(IntegerFormats, are_bounds) {
  const std::string schema = R"({"type":"integer","format":"int32"})";
  EXPECT_TRUE(accepts(schema, "2147483647"));
  EXPECT_TRUE(accepts(schema, "-2147483648"));
  EXPECT_FALSE(accepts(schema, "2147483648"));
  EXPECT_FALSE(accepts(schema, "-2147483649"));
  EXPECT_FALSE(accepts(R"({"type":"integer","format":"uint8"})", "-1"));
  EXPECT_TRUE(accepts(R"({"type":"integer","format":"uint8"})", "255"));
  EXPECT_TRUE(accepts(R"({"type":"integer","format":"int64"})", "123456789012345678"));
  EXPECT_TRUE(accepts(R"({"type":"number","format":"double"})", "1.5e3"));
  // Names that no specification knows restrict nothing.
  EXPECT_TRUE(accepts(R"({"type":"integer","format":"int33"})", "99999999999"));
}

}  // namespace
}  // namespace fathom::grammar::tests
