// Tools of /v1/messages: the client's own are shown, those with a schema of their kind with it, and those that a server
// would run are left out of the prompt.

#include "api/message_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/client_tools.h"
#include "api/messages_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using testing::HasSubstr, testing::Not;
using tests::accepted, tests::demo_served_model;

const std::string kOwn =
    R"({"name": "look", "description": "Look around", "input_schema": {"type": "object"}})";

std::string with_tools(const std::string& tools) {
  return R"({"max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}], "tools": [)" +
         tools + "]}";
}

struct ToolPrompt {
  std::vector<int32_t> ids;
  std::string text;
};

ToolPrompt prompt_with(const std::string& tools) {
  const ServedModel model = demo_served_model(16384);
  const GenerationRequest request = accepted(parse_messages_request(with_tools(tools), model));
  if (request.items.empty()) return {};
  const std::vector<int32_t>& ids = request.items[0].prompt;
  EXPECT_EQ(accepted(parse_count_tokens_request(with_tools(tools), model)),
            static_cast<int>(ids.size()));
  return {.ids = ids, .text = model.tokenizer->decode(ids, false)};
}

TEST(MessageTools, what_a_server_would_run_is_left_out) {
  const ToolPrompt own = prompt_with(kOwn), none = prompt_with("");
  for (
      const std::string tool :
      {R"({"type": "web_search_20250305", "name": "web_search", "max_uses": 5})",
       R"({"type": "web_fetch_20250910", "name": "web_fetch", "citations": {"enabled": true}})",
       R"({"type": "code_execution_20250825", "name": "code_execution"})",
       R"({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"})",
       R"({"type": "mcp_toolset", "mcp_server_name": "x"})",
       R"({"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1})",
       R"({"type": "of_tomorrow"})",
       R"({"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20250825"]})"}) {
    EXPECT_EQ(prompt_with(kOwn + ", " + tool).ids, own.ids) << tool;
    EXPECT_EQ(prompt_with(tool).ids, none.ids) << tool;
  }
}

TEST(MessageTools, a_schema_goes_with_its_kind) {
  const std::string bash = prompt_with(R"({"type": "bash_20250124", "name": "bash"})").text;
  EXPECT_THAT(bash, HasSubstr("restart"));
  EXPECT_THAT(bash, HasSubstr("Run a command in a bash shell"));
  const std::string editor =
      prompt_with(
          R"({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9})")
          .text;
  EXPECT_THAT(editor, HasSubstr("str_replace_based_edit_tool"));
  EXPECT_THAT(editor, HasSubstr("insert_text"));
  EXPECT_THAT(editor, Not(HasSubstr("undo_edit")));
  const std::string older =
      prompt_with(R"({"type": "text_editor_20250124", "name": "str_replace_editor"})").text;
  EXPECT_THAT(older, HasSubstr("undo_edit"));
  EXPECT_THAT(older, Not(HasSubstr("insert_text")));
  EXPECT_THAT(prompt_with(R"({"type": "memory_20250818", "name": "memory"})").text,
              HasSubstr("/memories"));
}

TEST(MessageTools, every_schema_of_a_kind_is_an_object_with_what_it_requires) {
  for (const char* type :
       {"bash_20241022", "bash_20250124", "text_editor_20241022", "text_editor_20250124",
        "text_editor_20250429", "text_editor_20250728", "memory_20250818"}) {
    const std::optional<ClientTool> tool = client_tool(type);
    ASSERT_TRUE(tool) << type;
    EXPECT_TRUE(json::is_text(tool->input_schema["type"], "object"));
    if (!tool->input_schema.contains("required")) continue;
    for (const json::Value& name : tool->input_schema["required"]) {
      EXPECT_TRUE(tool->input_schema["properties"].contains(name.get<std::string>())) << type;
    }
  }
  EXPECT_FALSE(client_tool("computer_20250124"));
  EXPECT_FALSE(client_tool("web_search_20250305"));
}

TEST(MessageTools, what_a_client_says_of_its_tools_for_other_servers_changes_nothing) {
  const std::string own = R"({"name": "look", "description": "Look around",
      "input_schema": {"type": "object"}, "defer_loading": true, "eager_input_streaming": true,
      "input_examples": [{"a": 1}], "cache_control": {"type": "ephemeral"},
      "allowed_callers": ["direct", "code_execution_20250825"], "type": "custom"})";
  EXPECT_EQ(prompt_with(own).ids, prompt_with(kOwn).ids);
  // A type that nobody knows, with a schema.
  EXPECT_EQ(prompt_with(R"({"name": "look", "description": "Look around",
      "input_schema": {"type": "object"}, "type": "function"})")
                .ids,
            prompt_with(kOwn).ids);
}

}  // namespace
}  // namespace fathom::api
