// Calls in DSML as a grammar: strings as texts, other values as JSON, members by the object's schema. "~" is the mark,
// as a special token and spelled out.
#include "grammar/dsml_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

const std::string kDsmlMark = "｜DSML｜";

std::string spelled(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '~' ? kDsmlMark : std::string(1, c);
  return out;
}

class DsmlCalls : public testing::Test {
 protected:
  TestVocabulary vocabulary = make_vocabulary(byte_tokens(), {kDsmlMark, "</think>"});
  const int32_t mark_token = 256;

  static Tool tool(std::string schema, bool strict = false) {
    return {.name = "f", .parameters_schema = std::move(schema), .strict = strict};
  }

  // Whether the output fits with the mark as a token; with_bytes: where there is no token.
  bool fits_as(bool with_token, const std::vector<Tool>& tools, const ToolCallOptions& options,
               const std::string& text) const {
    const Marker mark{kDsmlMark, with_token ? mark_token : -1};
    const auto constraint =
        compiled(dsml_calls(mark, tools, options))->new_constraint(vocabulary.vocabulary);
    for (const char c : text) {
      if (c == '~' && with_token) {
        if (!constraint->accept(mark_token)) return false;
        continue;
      }
      for (const char byte : c == '~' ? kDsmlMark : std::string(1, c)) {
        if (!constraint->accept(static_cast<uint8_t>(byte))) return false;
      }
    }
    return constraint->accept(vocabulary.eos);
  }

  bool fits(const std::vector<Tool>& tools, const ToolCallOptions& options,
            const std::string& text) const {
    const bool as_token = fits_as(true, tools, options, text);
    EXPECT_EQ(fits_as(false, tools, options, text), as_token) << text;
    return as_token;
  }

  static std::string section(const std::string& parameters) {
    return "<~function_calls>\n<~invoke name=\"f\">\n" + parameters +
           "\n</~invoke>\n</~function_calls>";
  }
  // Of one required call.
  bool takes(const Tool& tool, const std::string& parameters) const {
    return fits({tool}, {.required = true}, section(parameters));
  }
};

std::string text_of(const std::string& name, const std::string& text) {
  return "<~parameter name=\"" + name + "\" string=\"true\">" + text + "</~parameter>";
}
std::string json_of(const std::string& name, const std::string& json) {
  return "<~parameter name=\"" + name + "\" string=\"false\">" + json + "</~parameter>";
}

TEST_F(DsmlCalls, strings_are_texts_and_other_values_json) {
  const Tool weather = tool(
      R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},
          "parts":{"type":"array","items":{"type":"string"}}},"required":["city"]})");
  EXPECT_TRUE(takes(weather, text_of("city", "")));
  EXPECT_TRUE(takes(weather, text_of("city", " \"O<s>\\\n</lo &<｜ ")));
  EXPECT_TRUE(takes(weather, text_of("city", "a") + "\n" + json_of("days", "-3")));
  EXPECT_TRUE(takes(weather, text_of("city", "a") + "\n" + json_of("parts", "[\"x\", \"\"]")));
  EXPECT_FALSE(takes(weather, json_of("city", "\"a\"")));
  EXPECT_FALSE(takes(weather, text_of("city", "a") + "\n" + text_of("days", "3")));
  EXPECT_FALSE(takes(weather, text_of("city", "a") + "\n" + json_of("days", "3.5")));
  EXPECT_FALSE(takes(weather, json_of("days", "3"))) << "city is required";
  EXPECT_FALSE(takes(weather, json_of("days", "3") + "\n" + text_of("city", "a")));
  EXPECT_FALSE(takes(weather, text_of("city", "a") + "\n" + text_of("other", "a")));
  EXPECT_FALSE(takes(weather, text_of("city", "a") + text_of("days", "3")));
}

TEST_F(DsmlCalls, a_text_holds_no_tag) {
  const Tool any = tool(R"({"type":"object","properties":{"a":{"type":"string"}}})");
  EXPECT_FALSE(takes(any, text_of("a", "<" + kDsmlMark + "x")));
  EXPECT_FALSE(takes(any, text_of("a", "</" + kDsmlMark + "invoke>")));
  EXPECT_TRUE(fits_as(true, {any}, {.required = true}, section(text_of("a", kDsmlMark))));
}

TEST_F(DsmlCalls, the_rules_of_strings_hold) {
  const auto with = [](const std::string& schema) {
    return tool(R"({"type":"object","properties":{"a":)" + schema + R"(},"required":["a"]})");
  };
  EXPECT_TRUE(takes(with(R"({"enum":["x y","z",3]})"), text_of("a", "x y")));
  EXPECT_TRUE(takes(with(R"({"enum":["x y","z",3]})"), json_of("a", "3")));
  EXPECT_FALSE(takes(with(R"({"enum":["x y","z",3]})"), text_of("a", "x")));
  EXPECT_TRUE(takes(with(R"({"const":"a\nb"})"), text_of("a", "a\nb")));
  EXPECT_TRUE(takes(with(R"({"type":"string","pattern":"^[A-Z]{3}$"})"), text_of("a", "OSL")));
  EXPECT_FALSE(takes(with(R"({"type":"string","pattern":"^[A-Z]{3}$"})"), text_of("a", "OS")));
  EXPECT_TRUE(takes(with(R"({"type":"string","maxLength":2})"), text_of("a", "é<")));
  EXPECT_FALSE(takes(with(R"({"type":"string","maxLength":2})"), text_of("a", "abc")));
  EXPECT_TRUE(takes(with(R"({"type":"string","maxLength":5000})"), text_of("a", "abc")));
  EXPECT_FALSE(takes(with(R"({"type":"string","minLength":1})"), text_of("a", "")));
}

TEST_F(DsmlCalls, what_may_be_both_is_written_in_both_ways) {
  const Tool both = tool(
      R"({"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"integer"}]},
          "b":{"type":["string","null"]},"c":{}},"required":["a"]})");
  EXPECT_TRUE(takes(both, text_of("a", "3")));
  EXPECT_TRUE(takes(both, json_of("a", "3")));
  EXPECT_FALSE(takes(both, json_of("a", "\"x\"")));
  EXPECT_FALSE(takes(both, json_of("a", "null")));
  EXPECT_TRUE(takes(both, text_of("a", "") + "\n" + json_of("b", "null")));
  EXPECT_TRUE(takes(both, text_of("a", "") + "\n" + text_of("b", "null")));
  EXPECT_TRUE(takes(both, text_of("a", "") + "\n" + text_of("c", "x")));
  EXPECT_TRUE(takes(both, text_of("a", "") + "\n" + json_of("c", "{\"k\": [true]}")));
}

// Of a strict tool too: only where the schema asks for an object without saying which is it empty.
TEST_F(DsmlCalls, a_schema_that_asks_nothing_takes_any_value) {
  for (const char* const schema : {"{}", "true", R"({"anyOf":[{"type":"string"},{}]})"}) {
    const std::string text =
        std::string(R"({"type":"object","properties":{"a":)") + schema + R"(},"required":["a"]})";
    for (const bool strict : {false, true}) {
      const Tool any = tool(text, strict);
      for (const char* const value : {"{\"k\": 1}", "[{\"k\": 1}]", "1.5", "null", "true"})
        EXPECT_TRUE(takes(any, json_of("a", value))) << schema << " " << value;
      EXPECT_TRUE(takes(any, text_of("a", "x"))) << schema;
      EXPECT_FALSE(takes(any, json_of("a", "\"x\""))) << schema;
    }
  }
}

TEST_F(DsmlCalls, objects_are_held_to_their_schema) {
  const std::string properties = R"("properties":{"a":{"type":"integer"}})";
  const Tool open =
      tool(R"({"type":"object",)" + properties + R"(,"additionalProperties":{"type":"boolean"}})");
  EXPECT_TRUE(takes(open, json_of("a", "1") + "\n" + json_of("b c", "true")));
  EXPECT_FALSE(takes(open, json_of("b", "1")));
  EXPECT_FALSE(takes(open, json_of("a", "true")));
  EXPECT_TRUE(takes(open, ""));
  const Tool two =
      tool(R"({"type":"object","anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},
                            {"properties":{"b":{"const":"x"}},"required":["b"]}]})");
  EXPECT_TRUE(takes(two, json_of("a", "1")));
  EXPECT_TRUE(takes(two, text_of("b", "x")));
  EXPECT_FALSE(takes(two, ""));
  const Tool counted =
      tool(R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,
               "minProperties":1,"maxProperties":1})");
  EXPECT_TRUE(takes(counted, json_of("b", "1")));
  EXPECT_FALSE(takes(counted, ""));
  EXPECT_FALSE(takes(counted, json_of("a", "1") + "\n" + json_of("b", "1")));
  const Tool nested =
      tool(R"({"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":false})");
  EXPECT_TRUE(takes(nested, json_of("a", "{\"a\": {}}")));
  EXPECT_FALSE(takes(nested, json_of("a", "{\"b\": {}}")));
  const Tool listed = tool(R"({"enum":[{"a":"x","b":[1]},{}]})");
  EXPECT_TRUE(takes(listed, text_of("a", "x") + "\n" + json_of("b", "[1]")));
  EXPECT_TRUE(takes(listed, ""));
  EXPECT_FALSE(takes(listed, text_of("a", "x")));
  const Tool bare = tool(R"({"type":"object"})", /*strict=*/true);
  EXPECT_TRUE(takes(bare, ""));
  EXPECT_FALSE(takes(bare, json_of("a", "1")));
}

TEST_F(DsmlCalls, without_a_schema_there_may_be_any_members) {
  EXPECT_TRUE(takes(tool(""), ""));
  EXPECT_TRUE(takes(tool(""), text_of("город", "x") + "\n" + json_of("n", "[{}]")));
  EXPECT_FALSE(takes(tool(""), json_of("", "1")));
  EXPECT_FALSE(takes(tool(""), json_of("a", "x")));
}

TEST_F(DsmlCalls, a_custom_tools_input_is_of_its_form) {
  Tool custom = tool("");
  custom.input = regex("[a-z]+\n");
  EXPECT_TRUE(takes(custom, text_of("input", "abc\n")));
  EXPECT_FALSE(takes(custom, text_of("input", "ABC\n")));
  EXPECT_FALSE(takes(custom, ""));
}

TEST_F(DsmlCalls, stand_in_one_section) {
  const std::vector<Tool> tools = {tool(""), {.name = "g", .parameters_schema = ""}};
  const std::string f = "<~invoke name=\"f\">\n\n</~invoke>",
                    g = "<~invoke name=\"g\">\n\n</~invoke>";
  const std::string begin = "<~function_calls>\n", end = "\n</~function_calls>";
  const ToolCallOptions required = {.required = true}, one = {.required = true, .parallel = false};
  EXPECT_TRUE(fits(tools, required, "\n\n" + begin + f + "\n" + g + "\n" + f + end));
  EXPECT_FALSE(fits(tools, required, begin + "<~invoke name=\"h\">\n\n</~invoke>" + end));
  EXPECT_FALSE(fits(tools, required, begin + f + g + end));
  EXPECT_FALSE(fits(tools, required, "so" + begin + f + end));
  EXPECT_FALSE(fits(tools, required, begin + f + end + "so"));
  EXPECT_FALSE(fits(tools, required, f));
  EXPECT_TRUE(fits(tools, one, begin + g + end));
  EXPECT_FALSE(fits(tools, one, begin + g + "\n" + g + end));
  EXPECT_TRUE(fits(tools, {}, "Hello < ｜ </world>"));
  EXPECT_TRUE(fits(tools, {}, "Let me see.\n\n" + begin + f + end));
  EXPECT_TRUE(fits(tools, {}, ""));
  EXPECT_FALSE(fits(tools, {}, "so " + f));
  EXPECT_FALSE(fits(tools, {}, "so " + begin + "x"));
  EXPECT_FALSE(fits(tools, {}, "so </~invoke>"));
  const ToolCallOptions thinking = {.required = true, .reasoning_end = Marker{"</think>", -1}};
  EXPECT_TRUE(fits(tools, thinking, "Hm.</think>\n\n" + begin + f + end));
}

TEST_F(DsmlCalls, a_tag_cannot_be_spelled_where_there_is_a_token) {
  const std::vector<Tool> tools = {tool("")};
  const std::string f = spelled("<~function_calls>\n<~invoke name=\"f\">\n\n</~invoke>");
  EXPECT_FALSE(fits_as(true, tools, {}, f));
  EXPECT_FALSE(fits_as(true, tools, {.required = true}, f));
}

TEST_F(DsmlCalls, a_name_that_no_tag_can_hold_is_refused) {
  const auto made = compile(dsml_calls(
      {kDsmlMark, -1}, {tool(R"({"type":"object","properties":{"a\"b":{}},"required":["a\"b"]})")},
      {.required = true}));
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("cannot be written in a tag"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace fathom::grammar::tests
