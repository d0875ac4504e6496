// Tools of /v1/responses that are more than functions: namespaces and custom tools become functions that the model can
// be shown, and those that it cannot be offered are left out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/responses/responses_request.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted, tests::demo_served_model, tests::refused;

GenerationRequest read_response(const std::string& fields) {
  return accepted(parse_responses_request(R"({"input": "Hello", )" + fields + "}",
                                          demo_served_model(8192), {}));
}

// The prompt of chat with these tools.
std::vector<int32_t> chat_prompt(const std::string& tools) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "Hello"}], "tools": )" + tools + "}";
  return accepted(parse_chat_request(body, demo_served_model(8192))).items.at(0).prompt;
}

constexpr const char* kNamespace =
    R"({"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [
         {"type": "function", "name": "spawn", "description": "Starts one.", "strict": false,
          "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}},
         {"type": "function", "name": "wait"}]})";

TEST(ResponseTools, tools_of_a_namespace_have_its_name_before_their_own) {
  const GenerationRequest made = read_response(R"("tools": [)" + std::string(kNamespace) + "]");
  EXPECT_EQ(made.items.at(0).prompt, chat_prompt(R"([
      {"type": "function", "function": {"name": "agents__spawn", "description": "Other agents.\n\nStarts one.",
        "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}}},
      {"type": "function", "function": {"name": "agents__wait"}}])"));
  ASSERT_NE(made.form.tool_kinds, nullptr);
  const ToolKind wait{.is_custom = false, .name = "wait", .name_space = "agents"};
  EXPECT_EQ(kind_of(made.form.tool_kinds.get(), "agents__wait"), wait);
  EXPECT_EQ(kind_of(made.form.tool_kinds.get(), "other").name, "other");
}

TEST(ResponseTools, a_tool_of_a_namespace_is_chosen_by_both_names) {
  const ToolConstraint chosen =
      read_response(R"("tool_choice": {"type": "function", "namespace": "agents", "name": "wait"},
                       "tools": [)" +
                    std::string(kNamespace) + "]")
          .chat.tool_constraint;
  EXPECT_EQ(chosen.kind, ToolConstraint::Kind::kRequired);
  ASSERT_EQ(chosen.tools->size(), 1U);
  EXPECT_EQ((*chosen.tools)[0]["name"].get<std::string>(), "agents__wait");
}

TEST(ResponseTools, a_custom_tool_is_a_function_of_one_text) {
  const GenerationRequest made = read_response(
      R"("tools": [{"type": "custom", "name": "note", "description": "Keeps a text."}])");
  EXPECT_EQ(
      made.items.at(0).prompt,
      chat_prompt(
          R"([{"type": "function", "function": {"name": "note", "description": "Keeps a text.",
      "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}}])"));
  EXPECT_TRUE(kind_of(made.form.tool_kinds.get(), "note").is_custom);
  EXPECT_EQ(made.chat.tool_constraint.kind, ToolConstraint::Kind::kNone);
}

TEST(ResponseTools, a_grammar_constrains_calls_and_the_model_is_told) {
  const GenerationRequest made = read_response(
      R"("tools": [{"type": "custom", "name": "sum",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}}])");
  EXPECT_EQ(made.items.at(0).prompt,
            chat_prompt(R"([{"type": "function", "function": {"name": "sum",
      "description": "The input follows this grammar (Lark):\nstart: \"a\"",
      "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}}])"));
  EXPECT_EQ(made.chat.tool_constraint.kind, ToolConstraint::Kind::kOptional);
  EXPECT_EQ(
      json::dump(*made.chat.tool_constraint.tools),
      R"([{"type":"custom","custom":{"name":"sum","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"start: \"a\""}}}}])");
}

TEST(ResponseTools, tools_that_a_server_would_run_are_left_out) {
  const std::string function = R"({"type": "function", "name": "get_weather"})";
  for (const char* hosted :
       {R"({"type": "web_search", "external_web_access": true})",
        R"({"type": "web_search_preview"})",
        R"({"type": "file_search", "vector_store_ids": ["vs"]})",
        R"({"type": "code_interpreter", "container": {"type": "auto"}})",
        R"({"type": "image_generation"})", R"({"type": "local_shell"})",
        R"({"type": "mcp", "server_label": "x", "server_url": "y"})", R"({"type": "tool_search"})",
        R"({"type": "one_of_next_year", "name": 5})"}) {
    const GenerationRequest made = read_response(R"("tools": [)" + function + ", " + hosted + "]");
    EXPECT_EQ(made.items.at(0).prompt, chat_prompt(R"([{"name": "get_weather"}])")) << hosted;
    const GenerationRequest alone = read_response(R"("tools": [)" + std::string(hosted) + "]");
    EXPECT_EQ(alone.items.at(0).prompt, chat_prompt("[]")) << hosted;
    EXPECT_FALSE(alone.chat.parse_tools);
  }
}

TEST(ResponseTools, allowed_tools_may_name_some_that_are_left_out) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}, {"type": "web_search"}], )";
  const ToolConstraint allowed =
      read_response(tools +
                    R"("tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [
          {"type": "web_search"}, {"type": "custom", "name": "g"}]})")
          .chat.tool_constraint;
  EXPECT_EQ(allowed.kind, ToolConstraint::Kind::kRequired);
  EXPECT_EQ(json::dump(*allowed.tools), R"([{"type":"custom","custom":{"name":"g"}}])");
  const ApiError error = refused(parse_responses_request(
      R"({"input": "Hello", )" + tools +
          R"("tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}})",
      demo_served_model(8192), {}));
  EXPECT_THAT(error.message, testing::HasSubstr("cannot be offered"));
}

TEST(ResponseTools, calls_in_the_history_have_the_names_that_the_model_knows) {
  const auto prompt = [](const std::string& body) {
    return accepted(parse_responses_request(body, demo_served_model(8192), {})).items.at(0).prompt;
  };
  EXPECT_EQ(prompt(R"({"input": [{"role": "user", "content": "Hi"},
      {"type": "function_call", "namespace": "agents", "call_id": "a", "name": "wait", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "a", "output": "1"},
      {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "a\"b\n"},
      {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]}]})"),
            prompt(R"({"input": [{"role": "user", "content": "Hi"},
      {"type": "function_call", "call_id": "a", "name": "agents__wait", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "a", "output": "1"},
      {"type": "function_call", "call_id": "b", "name": "patch", "arguments": "{\"input\": \"a\\\"b\\n\"}"},
      {"type": "function_call_output", "call_id": "b", "output": "2"}]})"));
}

// The same tools in chat's form.
TEST(ChatCustomTools, are_what_the_responses_form_makes_of_them) {
  const std::string custom = R"({"type": "custom", "custom": {"name": "sum", "format":
      {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9]+"}}}})";
  const std::string begin = R"({"messages": [{"role": "user", "content": "Hello"}], "tools": [)";
  const GenerationRequest chat =
      accepted(parse_chat_request(begin + custom + "]}", demo_served_model(8192)));
  const GenerationRequest flat = read_response(
      R"("tools": [{"type": "custom", "name": "sum",
                    "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}}])");
  EXPECT_EQ(chat.items.at(0).prompt, flat.items.at(0).prompt);
  EXPECT_EQ(*chat.chat.tool_constraint.tools, *flat.chat.tool_constraint.tools);
  EXPECT_TRUE(kind_of(chat.form.tool_kinds.get(), "sum").is_custom);
  for (const char* choice :
       {R"({"type": "custom", "custom": {"name": "sum"}})",
        R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
              {"type": "custom", "custom": {"name": "sum"}}]}})"}) {
    const GenerationRequest chosen = accepted(parse_chat_request(
        begin + custom + R"(], "tool_choice": )" + choice + "}", demo_served_model(8192)));
    EXPECT_EQ(chosen.chat.tool_constraint.kind, ToolConstraint::Kind::kRequired);
    EXPECT_EQ(chosen.chat.tool_constraint.tools->size(), 1U);
  }
}

TEST(ChatCustomTools, calls_of_them_come_back_in_the_history) {
  const auto prompt = [](const std::string& call) {
    return accepted(parse_chat_request(
                        R"({"messages": [{"role": "user", "content": "Hi"},
                             {"role": "assistant", "tool_calls": [)" +
                            call + R"(]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]})",
                        demo_served_model(8192)))
        .items.at(0)
        .prompt;
  };
  EXPECT_EQ(
      prompt(R"({"id": "a", "type": "custom", "custom": {"name": "patch", "input": "x\"y"}})"),
      prompt(R"({"id": "a", "type": "function", "function":
                        {"name": "patch", "arguments": "{\"input\": \"x\\\"y\"}"}})"));
}

TEST(ChatCustomTools, broken_ones_are_refused_by_their_place) {
  const auto error = [](const std::string& tool) {
    return refused(parse_chat_request(
        R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [)" + tool + "]}",
        demo_served_model(8192)));
  };
  EXPECT_EQ(error(R"({"type": "custom"})").param, "tools[0].custom");
  EXPECT_EQ(error(R"({"type": "custom", "custom": {}})").param, "tools[0].custom.name");
  EXPECT_EQ(
      error(R"({"type": "custom", "custom": {"name": "f"}, "function": {"name": "f"}})").param,
      "tools[0].function");
  EXPECT_EQ(
      error(R"({"type": "function", "function": {"name": "f"}, "custom": {"name": "f"}})").param,
      "tools[0].custom");
  EXPECT_EQ(
      error(R"({"type": "custom", "custom": {"name": "f", "format": {"type": "grammar"}}})").param,
      "tools[0].custom.format.grammar");
}

}  // namespace
}  // namespace fathom::api
