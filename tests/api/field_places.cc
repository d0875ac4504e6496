#include "tests/api/field_places.h"

#include <variant>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generate_request.h"
#include "api/operators/operator_request.h"
#include "api/output_text_request.h"
#include "api/score_request.h"
#include "api/tables/custom_tool_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/tables/field_groups.h"
#include "api/tokenize_request.h"

namespace fathom::api::tests {
namespace {

template <class T>
std::optional<ApiError> error_of(const Parsed<T>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  return error != nullptr ? std::optional(*error) : std::nullopt;
}

std::optional<ApiError> chat(std::string_view body, const ServedModel& model) {
  return error_of(parse_chat_request(body, model));
}
std::optional<ApiError> completion(std::string_view body, const ServedModel& model) {
  return error_of(parse_completion_request(body, model));
}
std::optional<ApiError> generate(std::string_view body, const ServedModel& model) {
  return error_of(parse_generate_request(body, model));
}
std::optional<ApiError> tokenize(std::string_view body, const ServedModel& model) {
  return error_of(parse_tokenize_request(body, model));
}
std::optional<ApiError> detokenize(std::string_view body, const ServedModel& model) {
  return error_of(parse_detokenize_request(body, model));
}

std::optional<ApiError> pause(std::string_view body, const ServedModel& model) {
  return error_of(parse_pause_request(body, model));
}

std::optional<ApiError> abort_request(std::string_view body, const ServedModel& model) {
  return error_of(parse_abort_request(body, model));
}

std::optional<ApiError> score(std::string_view body, const ServedModel& model) {
  return error_of(parse_score_request(body, model));
}
std::optional<ApiError> call_text(std::string_view body, const ServedModel& model) {
  return error_of(parse_call_text_request(body, model));
}
std::optional<ApiError> reasoning_text(std::string_view body, const ServedModel& model) {
  return error_of(parse_reasoning_text_request(body, model));
}

const char* const kMessages = R"([{"role": "user", "content": "hi"}])";
const char* const kTools = R"([{"type": "function", "function": {"name": "f"}}])";

// An object that is the value of a field of a chat.
FieldPlace in_chat(const FieldTable& (*table)(), const std::string& before,
                   std::vector<std::pair<std::string, std::string>> base, const std::string& after,
                   const std::string& path) {
  return {.table = table,
          .parse = chat,
          .before = R"({"max_tokens": 1, )" + before,
          .after = after + "}",
          .base = std::move(base),
          .path = path};
}

std::vector<FieldPlace> bodies() {
  return {{chat_fields, chat, "", "", {{"messages", kMessages}, {"max_tokens", "1"}}, ""},
          {completion_fields, completion, "", "", {{"prompt", "[5]"}, {"max_tokens", "1"}}, ""},
          {generate_fields, generate, "", "", {{"input_ids", "[5]"}}, ""},
          {sampling_params_fields,
           generate,
           R"({"input_ids": [5], "sampling_params": )",
           "}",
           {{"max_new_tokens", "1"}},
           "sampling_params"},
          {tokenize_fields, tokenize, "", "", {{"messages", kMessages}}, ""},
          {detokenize_fields, detokenize, "", "", {{"tokens", "[5]"}}, ""},
          {score_fields,
           score,
           "",
           "",
           {{"query", R"("a")"}, {"items", R"(["b"])"}, {"label_token_ids", "[5]"}},
           ""},
          {call_text_fields, call_text, "", "", {{"text", R"("hi")"}}, ""},
          {reasoning_text_fields,
           reasoning_text,
           "",
           "",
           {{"text", R"("hi")"}, {"reasoning_parser", R"("deepseek-r1")"}},
           ""},
          {pause_fields, pause, "", "", {}, ""},
          {continue_fields, check_continue_request, "", "", {}, ""},
          {abort_fields, abort_request, "", "", {{"rid", R"("a")"}}, ""},
          {start_profile_fields, check_start_profile_request, "", "", {}, ""}};
}

std::vector<FieldPlace> messages() {
  const std::string call = R"("messages": [{"role": "assistant", "tool_calls": [)";
  const std::string answered = R"(]}, {"role": "tool", "content": "r"}])";
  return {in_chat(message_fields, R"("messages": [)",
                  {{"role", R"("user")"}, {"content", R"("hi")"}}, "]", "messages[0]"),
          in_chat(content_part_fields, R"("messages": [{"role": "user", "content": [)",
                  {{"type", R"("text")"}, {"text", R"("hi")"}}, "]}]", "messages[0].content[0]"),
          in_chat(call_fields, call, {{"function", R"({"name": "f"})"}}, answered,
                  "messages[0].tool_calls[0]"),
          in_chat(called_custom_fields, call + R"({"type": "custom", "custom": )",
                  {{"name", R"("f")"}}, "}" + answered, "messages[0].tool_calls[0].custom"),
          in_chat(called_function_fields, call + R"({"function": )", {{"name", R"("f")"}},
                  "}" + answered, "messages[0].tool_calls[0].function")};
}

std::vector<FieldPlace> tools() {
  const std::string beside =
      R"("messages": )" + std::string(kMessages) + R"(, "tools": )" + kTools + ", ";
  const std::string allowed =
      R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [)";
  return {in_chat(tool_fields, R"("messages": )" + std::string(kMessages) + R"(, "tools": [)",
                  {{"name", R"("f")"}}, "]", "tools[0]"),
          in_chat(function_fields,
                  R"("messages": )" + std::string(kMessages) + R"(, "tools": [{"function": )",
                  {{"name", R"("f")"}}, "}]", "tools[0].function"),
          in_chat(custom_tool_fields,
                  R"("messages": )" + std::string(kMessages) +
                      R"(, "tools": [{"type": "custom", "custom": )",
                  {{"name", R"("f")"}}, "}]", "tools[0].custom"),
          in_chat(custom_format_fields,
                  R"("messages": )" + std::string(kMessages) +
                      R"(, "tools": [{"type": "custom", "custom": {"name": "f", "format": )",
                  {{"type", R"("text")"}}, "}}]", "tools[0].custom.format"),
          in_chat(custom_grammar_fields,
                  R"("messages": )" + std::string(kMessages) +
                      R"(, "tools": [{"type": "custom", "custom": {"name": "f", "format": )" +
                      R"({"type": "grammar", "grammar": )",
                  {{"syntax", R"("regex")"}, {"definition", R"("a")"}}, "}}}]",
                  "tools[0].custom.format.grammar"),
          in_chat(chosen_custom_fields,
                  R"("messages": )" + std::string(kMessages) +
                      R"(, "tools": [{"type": "custom", "custom": {"name": "f"}}], )" +
                      R"("tool_choice": {"type": "custom", "custom": )",
                  {{"name", R"("f")"}}, "}", "tool_choice.custom"),
          in_chat(tool_choice_fields, beside + R"("tool_choice": )",
                  {{"type", R"("function")"}, {"function", R"({"name": "f"})"}}, "", "tool_choice"),
          in_chat(allowed_tools_fields,
                  beside + R"("tool_choice": {"type": "allowed_tools", "allowed_tools": )",
                  {{"mode", R"("auto")"}, {"tools", kTools}}, "}", "tool_choice.allowed_tools"),
          in_chat(chosen_tool_fields, beside + allowed, {{"function", R"({"name": "f"})"}}, "]}}",
                  "tool_choice.allowed_tools.tools[0]"),
          in_chat(chosen_function_fields,
                  beside + R"("tool_choice": {"type": "function", "function": )",
                  {{"name", R"("f")"}}, "}", "tool_choice.function")};
}

std::vector<FieldPlace> settings() {
  const std::string beside = R"("messages": )" + std::string(kMessages) + ", ";
  return {
      in_chat(usage_wish_fields, beside + R"("usage": )", {}, "", "usage"),
      in_chat(ollama_options_fields, beside + R"("options": )", {}, "", "options"),
      in_chat(stream_options_fields, beside + R"("stream_options": )", {}, "", "stream_options"),
      in_chat(response_format_fields, beside + R"("response_format": )",
              {{"type", R"("json_schema")"}, {"json_schema", R"({"schema": {}})"}}, "",
              "response_format"),
      in_chat(named_schema_fields,
              beside + R"("response_format": {"type": "json_schema", "json_schema": )",
              {{"schema", "{}"}}, "}", "response_format.json_schema"),
      in_chat(structured_outputs_fields, beside + R"("structured_outputs": )", {}, "",
              "structured_outputs"),
      in_chat(thinking_fields, beside + R"("thinking": )", {{"type", R"("enabled")"}}, "",
              "thinking"),
      in_chat(reasoning_fields, beside + R"("reasoning": )", {}, "", "reasoning"),
      in_chat(template_kwargs_fields, beside + R"("chat_template_kwargs": )", {}, "",
              "chat_template_kwargs")};
}

}  // namespace

std::vector<FieldPlace> field_places() {
  std::vector<FieldPlace> places = bodies();
  for (const auto& more : {messages(), tools(), settings(), form_places()}) {
    places.insert(places.end(), more.begin(), more.end());
  }
  return places;
}

std::string body_with(const FieldPlace& place, std::string_view name, std::string_view value) {
  std::string object = "{\"" + std::string(name) + "\": " + std::string(value);
  for (const auto& [key, text] : place.base) {
    // Of text and input_ids one may be set; with both it would not be the field's own value that is refused.
    if (key == name || (key == "input_ids" && name == "text")) continue;
    object += ", \"" + key + "\": " + text;
  }
  return place.before + object + "}" + place.after;
}

std::string path_in(const FieldPlace& place, std::string_view name) {
  return place.path.empty() ? std::string(name) : place.path + "." + std::string(name);
}

}  // namespace fathom::api::tests
