// Tools by the hundred, as servers of tools offer them: all of one server's at once, with arguments that are held to
// their schemas.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/tool_calls.h"
#include "tests/cpu_time.h"
#include "tests/grammar/random_walk.h"
#include "tests/grammar/schema_validator.h"
#include "tests/sanitized.h"

namespace fathom::grammar::tests {
namespace {

// What the tools of a code host take: names, filters by listed values, pages, dates, lists of labels, objects in lists.
std::string tool_schema(int number) {
  const std::string id = std::to_string(number);
  std::string properties =
      R"("owner": {"type": "string", "description": "Repository owner, a user or an organization"},
         "repo": {"type": "string", "description": "Repository name"},
         "page": {"type": "number", "minimum": 1, "description": "Page of the results, from 1 on"},
         "perPage": {"type": "number", "minimum": 1, "maximum": 100, "description": "Results per page"},
         "method": {"type": "string", "enum": ["get", "list", "create_)" +
      id + R"(", "update", "delete"], "description": "What to do with thing )" + id + R"("})";
  if (number % 2 == 0) {
    properties +=
        R"(, "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
         "sort": {"type": "string", "enum": ["created", "updated", "comments", "interactions"]},
         "since": {"type": "string", "format": "date-time", "description": "Only what changed after this time"})";
  }
  if (number % 3 == 0) {
    properties +=
        R"(, "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
         "issue_number": {"type": "integer", "minimum": 1, "maximum": 2147483647})";
  }
  if (number % 5 == 0) {
    properties += R"(, "files": {"type": "array", "minItems": 1, "items": {"type": "object",
         "properties": {"path": {"type": "string", "pattern": "^[^/]"}, "content": {"type": "string"},
                        "mode": {"enum": ["100644", "100755", "040000"]}},
         "required": ["path", "content"], "additionalProperties": false}})";
  }
  if (number % 7 == 0) {
    properties += R"(, "fields": {"type": "array", "items": {"anyOf": [
         {"type": "object", "properties": {"id": {"type": "integer"}, "value": {"type": ["string", "null"]}},
          "required": ["id", "value"]}, {"type": "string"}]}}, "draft": {"type": "boolean", "default": false})";
  }
  return R"({"type": "object", "properties": {)" + properties +
         R"(}, "required": ["method", "owner", "repo"], "additionalProperties": false})";
}

std::vector<Tool> tool_set(int num_tools) {
  std::vector<Tool> tools;
  for (int i = 0; i < num_tools; ++i) {
    tools.push_back({"thing_" + std::to_string(i) + "_action", tool_schema(i)});
  }
  return tools;
}

ToolCallSyntax bare_syntax() {
  using Kind = ToolCallStep::Kind;
  return {{"<calls>", -1},
          {"</calls>", -1},
          {"<call>", -1},
          {{Kind::kName},
           {Kind::kLiteral, {"<sep>", -1}},
           {Kind::kObject},
           {Kind::kLiteral, {"</call>", -1}}}};
}

// Sanitizers make compiling some thirty times slower.
Limits limits() {
  Limits limits;
  if (kIsSanitized) limits.max_cpu_seconds = 60;
  return limits;
}

// 117 is what GitHub's server offers, 128 is what OpenAI's API takes.
TEST(ToolSet, all_tools_of_a_server_fit_at_once) {
  for (const int num_tools : {117, 128}) {
    const CpuStopwatch watch;
    const auto grammar =
        compile(tool_calls(bare_syntax(), tool_set(num_tools), {.required = true}), limits());
    ASSERT_TRUE(grammar) << grammar.error().message;
    EXPECT_LT(watch.seconds(), kIsSanitized ? 60 : 1.5);
    EXPECT_LT((*grammar)->num_states(), Limits{}.max_states);
  }
}

TEST(ToolSet, every_call_follows_the_schema_of_its_tool) {
  const std::vector<Tool> tools = tool_set(117);
  const auto grammar =
      compiled(tool_calls(bare_syntax(), tools, {.required = true, .parallel = false}), limits());
  const TestVocabulary bytes = make_vocabulary(byte_tokens());
  for (int number = 0; number < 117; ++number) {
    const auto constraint = grammar->new_constraint(bytes.vocabulary);
    const std::string head = "<calls><call>" + tools[static_cast<size_t>(number)].name + "<sep>";
    for (const char c : head) ASSERT_TRUE(constraint->accept(static_cast<uint8_t>(c))) << head;
    const Walk walk = random_walk(*constraint, bytes, static_cast<uint64_t>(number), 4000, 120);
    const size_t end = walk.text.find("</call>");
    ASSERT_TRUE(walk.is_complete) << walk.text;
    ASSERT_NE(end, walk.text.npos) << walk.text;
    const auto arguments = json::parse(walk.text.substr(0, end));
    const auto schema = json::parse(tool_schema(number));
    ASSERT_TRUE(arguments && schema) << walk.text;
    EXPECT_EQ(violation(*schema, *schema, *arguments), "") << tool_schema(number) << "\n"
                                                           << walk.text;
  }
}

TEST(ToolSet, a_value_of_another_tool_is_refused) {
  const auto grammar =
      compiled(tool_calls(bare_syntax(), tool_set(117), {.required = true}), limits());
  const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto taken = [&](const std::string& text) {
    const auto constraint = grammar->new_constraint(bytes.vocabulary);
    size_t at = 0;
    while (at < text.size() && constraint->accept(static_cast<uint8_t>(text[at]))) ++at;
    return text.substr(0, at);
  };
  const auto call = [](int tool, int value) {
    return "<calls><call>thing_" + std::to_string(tool) +
           R"(_action<sep>{"owner":"a","repo":"b","method":"create_)" + std::to_string(value) +
           R"("}</call></calls>)";
  };
  EXPECT_EQ(taken(call(38, 38)), call(38, 38));
  EXPECT_EQ(taken(call(38, 57)).find("create_5"), std::string::npos);
  EXPECT_EQ(taken("<calls><call>thing_117"), "<calls><call>thing_11");
}

// A set that is too large for the compiler says so, and in time.
TEST(ToolSet, what_is_too_large_is_told_its_limit) {
  std::vector<Tool> tools = tool_set(128);
  for (Tool& tool : tools) {
    tool.parameters_schema.insert(1, R"("description": ")" + std::string(2000, 'd') + "\", ");
  }
  const CpuStopwatch watch;
  const auto grammar = compile(tool_calls(bare_syntax(), tools, {.required = true}));
  EXPECT_LT(watch.seconds(), kIsSanitized ? 60 : 1.5);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().code, ErrorCode::kTooLong);
  EXPECT_NE(grammar.error().message.find("the limit is 262144"), std::string::npos)
      << grammar.error().message;
}

}  // namespace
}  // namespace fathom::grammar::tests
