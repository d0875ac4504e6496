// The objects of the newer forms' bodies: /v1/messages and /v1/responses.

#include <variant>

#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "api/tables/custom_tool_fields.h"
#include "api/tables/messages_fields.h"
#include "api/tables/response_item_fields.h"
#include "api/tables/responses_fields.h"
#include "tests/api/field_places.h"

namespace fathom::api::tests {
namespace {

using Members = std::vector<std::pair<std::string, std::string>>;

std::optional<ApiError> error_in(const Parsed<GenerationRequest>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  return error != nullptr ? std::optional(*error) : std::nullopt;
}
std::optional<ApiError> message(std::string_view body, const ServedModel& model) {
  return error_in(parse_messages_request(body, model));
}
std::optional<ApiError> response(std::string_view body, const ServedModel& model) {
  return error_in(parse_responses_request(body, model, {}));
}

const char* const kTurns = R"([{"role": "user", "content": "hi"}])";
const char* const kTurnsBefore = R"({"max_tokens": 1, "messages": )";

// An object that is the value of a field of the body, beside a conversation.
FieldPlace in_message(const FieldTable& (*table)(), const std::string& name, Members base,
                      const std::string& more = "") {
  return {
      table, message,         kTurnsBefore + std::string(kTurns) + more + ", \"" + name + "\": ",
      "}",   std::move(base), name};
}

FieldPlace in_turns(const FieldTable& (*table)(), const std::string& before, Members base,
                    const std::string& after, const std::string& path) {
  return {table, message, kTurnsBefore + before, after + "}", std::move(base), path};
}

FieldPlace in_response(const FieldTable& (*table)(), const std::string& name, Members base,
                       const std::string& more = "") {
  return {table, response,        R"({"input": "hi")" + more + ", \"" + name + "\": ",
          "}",   std::move(base), name};
}

FieldPlace in_input(const FieldTable& (*table)(), const std::string& before, Members base,
                    const std::string& after, const std::string& path) {
  return {table, response, R"({"input": [)" + before, after + "]}", std::move(base), path};
}

std::vector<FieldPlace> message_places() {
  const std::string answer =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [)";
  const std::string call = R"({"type": "tool_use", "id": "a", "name": "f", "input": {}})";
  const std::string tools = R"(, "tools": [{"name": "f", "input_schema": {}}])";
  const std::string block = "messages[1].content[0]";
  return {
      {messages_fields, message, "", "", {{"messages", kTurns}, {"max_tokens", "1"}}, ""},
      in_message(thinking_config_fields, "thinking", {{"type", R"("adaptive")"}}),
      in_message(output_config_fields, "output_config", {}),
      in_message(chosen_message_tool_fields, "tool_choice",
                 {{"type", R"("tool")"}, {"name", R"("f")"}}, tools),
      in_turns(turn_fields, "[", {{"role", R"("user")"}, {"content", R"("hi")"}}, "]",
               "messages[0]"),
      in_turns(text_block_fields, R"([{"role": "user", "content": [)",
               {{"type", R"("text")"}, {"text", R"("hi")"}}, "]}]", "messages[0].content[0]"),
      in_turns(thinking_block_fields, answer, {{"type", R"("thinking")"}, {"thinking", R"("a")"}},
               R"(, {"type": "text", "text": "b"}]}])", block),
      in_turns(redacted_block_fields, answer,
               {{"type", R"("redacted_thinking")"}, {"data", R"("a")"}},
               R"(, {"type": "text", "text": "b"}]}])", block),
      in_turns(
          tool_use_block_fields, answer,
          {{"type", R"("tool_use")"}, {"id", R"("a")"}, {"name", R"("f")"}, {"input", "{}"}},
          R"(]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}])",
          block),
      in_turns(tool_result_block_fields, answer + call + R"(]}, {"role": "user", "content": [)",
               {{"type", R"("tool_result")"}, {"tool_use_id", R"("a")"}, {"content", R"("x")"}},
               "]}]", "messages[2].content[0]"),
      in_turns(message_tool_fields, std::string(kTurns) + R"(, "tools": [)",
               {{"name", R"("f")"}, {"input_schema", "{}"}}, "]", "tools[0]")};
}

std::vector<FieldPlace> response_places() {
  const std::string user = R"({"role": "user", "content": "hi"})";
  const std::string call =
      R"({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"})";
  const std::string result = R"({"type": "function_call_output", "call_id": "a", "output": "x"})";
  const std::string tools = R"(, "tools": [{"type": "function", "name": "f"}])";
  return {
      {responses_fields, response, "", "", {{"input", R"("hi")"}}, ""},
      in_response(response_reasoning_fields, "reasoning", {}),
      in_response(text_config_fields, "text", {}),
      {flat_format_fields,
       response,
       R"({"input": "hi", "text": {"format": )",
       "}}",
       {{"type", R"("json_schema")"}, {"name", R"("n")"}, {"schema", "{}"}},
       "text.format"},
      in_response(response_stream_fields, "stream_options", {}, R"(, "stream": true)"),
      in_input(message_item_fields, "", {{"role", R"("user")"}, {"content", R"("hi")"}}, "",
               "input[0]"),
      in_input(item_part_fields, R"({"role": "user", "content": [)",
               {{"type", R"("input_text")"}, {"text", R"("hi")"}}, "]}", "input[0].content[0]"),
      in_input(call_item_fields, user + ", ",
               {{"type", R"("function_call")"},
                {"call_id", R"("a")"},
                {"name", R"("f")"},
                {"arguments", R"("{}")"}},
               ", " + result, "input[1]"),
      in_input(result_item_fields, user + ", " + call + ", ",
               {{"type", R"("function_call_output")"}, {"call_id", R"("a")"}, {"output", R"("x")"}},
               "", "input[2]"),
      in_input(custom_call_item_fields, user + ", ",
               {{"type", R"("custom_tool_call")"},
                {"call_id", R"("a")"},
                {"name", R"("f")"},
                {"input", R"("x")"}},
               ", " + result, "input[1]"),
      in_input(reasoning_item_fields, user + ", ", {{"type", R"("reasoning")"}, {"summary", "[]"}},
               "", "input[1]"),
      {flat_tool_fields,
       response,
       R"({"input": "hi", "tools": [)",
       "]}",
       {{"type", R"("function")"}, {"name", R"("f")"}},
       "tools[0]"},
      {flat_custom_format_fields,
       response,
       R"({"input": "hi", "tools": [{"type": "custom", "name": "f", "format": )",
       "}]}",
       {{"type", R"("text")"}},
       "tools[0].format"},
      in_response(flat_allowed_fields, "tool_choice",
                  {{"type", R"("allowed_tools")"},
                   {"mode", R"("auto")"},
                   {"tools", R"([{"type": "function", "name": "f"}])"}},
                  tools),
      in_response(flat_choice_fields, "tool_choice",
                  {{"type", R"("function")"}, {"name", R"("f")"}}, tools)};
}

}  // namespace

std::vector<FieldPlace> form_places() {
  std::vector<FieldPlace> places = message_places();
  for (FieldPlace& place : places) place.endpoint = "/v1/messages";
  for (FieldPlace& place : response_places()) {
    place.endpoint = "/v1/responses";
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace fathom::api::tests
