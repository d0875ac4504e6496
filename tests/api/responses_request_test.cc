// Bodies of /v1/responses: what they make of a conversation is what chat makes of the same one, also where it goes on
// with a stored response, and what the form has that is not here is refused by name.

#include "api/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/responses/response_draft.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted, tests::demo_served_model, tests::refused;

ServedModel responses_model() { return demo_served_model(8192); }

// What is stored: one response, "resp_1".
std::shared_ptr<const StoredResponse> past_response(const std::string& id) {
  if (id != "resp_1") return nullptr;
  return std::make_shared<const StoredResponse>(StoredResponse{
      .messages = {{.role = "user", .content = "Oslo?"},
                   {.role = "assistant",
                    .content = std::nullopt,
                    .tool_calls = {{.id = "c", .name = "get_weather", .arguments = "{}"}}}},
      .body = "{}"});
}

// And an item of it.
std::optional<std::string> past_item(const std::string& id) {
  if (id != "msg_1") return std::nullopt;
  return R"({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "3", "annotations": [], "logprobs": []}]})";
}

Parsed<GenerationRequest> parse_response_body(const std::string& fields) {
  return parse_responses_request("{" + fields + "}", responses_model(),
                                 {.find_response = past_response, .find_item = past_item});
}

const std::string kHelloInput = R"("input": "Hello")";

void expect_chat_prompt(const std::string& fields, const std::string& chat_fields) {
  const GenerationRequest made = accepted(parse_response_body(fields));
  const GenerationRequest chat =
      accepted(parse_chat_request("{" + chat_fields + "}", responses_model()));
  ASSERT_EQ(made.items.size(), 1U) << fields;
  EXPECT_EQ(made.items[0].prompt, chat.items.at(0).prompt) << fields;
  EXPECT_EQ(made.chat.starts_in_reasoning, chat.chat.starts_in_reasoning);
  EXPECT_EQ(made.chat.parse_tools, chat.chat.parse_tools);
  EXPECT_EQ(made.chat.hide_tool_markers, chat.chat.hide_tool_markers);
}

const std::string kFlatTool =
    R"("tools": [{"type": "function", "name": "get_weather", "description": "Of a city",
                  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}], )";
const std::string kChatTool =
    R"("tools": [{"type": "function", "function": {"name": "get_weather", "description": "Of a city",
                  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}], )";

TEST(ResponsesRequest, makes_the_prompt_that_chat_makes_of_the_same_conversation) {
  expect_chat_prompt(kHelloInput, R"("messages": [{"role": "user", "content": "Hello"}])");
  expect_chat_prompt(
      R"("instructions": "Be brief.", "input": [
           {"role": "user", "content": [{"type": "input_text", "text": "1"}, {"type": "input_text", "text": "2"}]},
           {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
           {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "3", "annotations": [], "logprobs": []}]},
           {"type": "message", "role": "user", "content": "4"}])",
      R"("messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12"},
                      {"role": "assistant", "content": "3"}, {"role": "user", "content": "4"}])");
}

TEST(ResponsesRequest, makes_the_prompt_of_calls_and_their_results) {
  expect_chat_prompt(kFlatTool + R"("input": [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "get_weather",
         "arguments": "{\"city\":\"Oslo\"}", "status": "completed"},
        {"type": "function_call", "call_id": "b", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "sun"}]}])",
                     kChatTool + R"("messages": [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
          {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"}},
          {"id": "b", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": "sun"}])");
}

TEST(ResponsesRequest, a_call_that_was_cut_comes_back_as_it_was) {
  expect_chat_prompt(kFlatTool + R"("input": [
        {"role": "user", "content": "Oslo?"},
        {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{\"city\": \"Os",
         "status": "incomplete"},
        {"type": "function_call_output", "call_id": "a", "output": "no JSON"}])",
                     kChatTool + R"("messages": [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "tool_calls": [
          {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Os"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "no JSON"}])");
}

TEST(ResponsesRequest, goes_on_with_a_stored_response) {
  const std::string next =
      R"("previous_response_id": "resp_1", "instructions": "Be brief.",
         "input": [{"type": "function_call_output", "call_id": "c", "output": "rain"}])";
  expect_chat_prompt(kFlatTool + next, kChatTool + R"("messages": [
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo?"},
      {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "rain"}])");
  // Instructions are of one request; the conversation goes on.
  const GenerationRequest made = accepted(parse_response_body(kFlatTool + next));
  ASSERT_NE(made.form.response, nullptr);
  ASSERT_EQ(made.form.response->messages.size(), 3U);
  EXPECT_EQ(made.form.response->messages[2].role, "tool");
  const ApiError gone =
      refused(parse_response_body(R"("previous_response_id": "resp_2", )" + kHelloInput));
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.param, "previous_response_id");
  EXPECT_THAT(gone.message, testing::HasSubstr("resp_2"));
  const ApiError foreign =
      refused(parse_response_body(R"("previous_response_id": "bad", )" + kHelloInput));
  EXPECT_EQ(foreign.status, 400);
  EXPECT_THAT(foreign.message, testing::HasSubstr("begins with resp_"));
}

TEST(ResponsesRequest, effort_switches_reasoning) {
  expect_chat_prompt(
      R"("reasoning": {"effort": "high", "summary": "auto"}, )" + kHelloInput,
      R"("reasoning_effort": "high", "messages": [{"role": "user", "content": "Hello"}])");
  expect_chat_prompt(R"("reasoning": {"effort": "none"}, )" + kHelloInput,
                     R"("messages": [{"role": "user", "content": "Hello"}])");
}

TEST(ResponsesRequest, settings_arrive_and_are_repeated_in_the_response) {
  const GenerationRequest made = accepted(parse_response_body(
      R"("temperature": 0.25, "top_p": 0.5, "max_output_tokens": 9, "stream": true, "store": false, "ignore_eos": true,
         "metadata": {"a": "b"}, "instructions": "x", "user": "u", "tool_choice": "none",
         "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}, )" +
      kFlatTool + kHelloInput));
  ASSERT_EQ(made.items.size(), 1U);
  EXPECT_EQ(made.items[0].sampling.temperature, 0.25f);
  EXPECT_EQ(made.items[0].sampling.top_p, 0.5f);
  EXPECT_EQ(made.items[0].sampling.max_new_tokens, 9);
  EXPECT_TRUE(made.items[0].sampling.ignore_eos);
  EXPECT_EQ(made.items[0].grammar->kind, GrammarSource::Kind::kJsonSchema);
  EXPECT_EQ(made.items[0].grammar->field, "text.format.schema");
  EXPECT_TRUE(made.form.stream);
  EXPECT_FALSE(made.form.response->is_stored);
  const json::Value settings = json::parse("{" + made.form.response->settings + "}").value();
  EXPECT_EQ(settings["temperature"].get<double>(), 0.25);
  EXPECT_TRUE(settings["tools"][0]["strict"].is_null());
  EXPECT_EQ(settings["max_output_tokens"].get<int>(), 9);
  EXPECT_FALSE(settings["store"].get<bool>());
  EXPECT_EQ(settings["metadata"]["a"].get<std::string>(), "b");
  EXPECT_EQ(settings["tools"][0]["name"].get<std::string>(), "get_weather");
  EXPECT_EQ(settings["tool_choice"].get<std::string>(), "none");
  EXPECT_EQ(settings["text"]["format"]["name"].get<std::string>(), "n");
  EXPECT_TRUE(settings["previous_response_id"].is_null());
  EXPECT_EQ(settings["instructions"].get<std::string>(), "x");
}

TEST(ResponsesRequest, choices_of_tools_constrain_calls) {
  using Kind = ToolConstraint::Kind;
  const auto constraint = [](const std::string& choice) {
    return accepted(parse_response_body(choice + ", " + kFlatTool + kHelloInput))
        .chat.tool_constraint;
  };
  EXPECT_EQ(constraint(R"("tool_choice": "auto")").kind, Kind::kNone);
  EXPECT_EQ(constraint(R"("tool_choice": "required")").kind, Kind::kRequired);
  EXPECT_EQ(constraint(R"("tool_choice": {"type": "function", "name": "get_weather"})").kind,
            Kind::kRequired);
  EXPECT_FALSE(constraint(R"("parallel_tool_calls": false)").parallel);
  const ToolConstraint allowed = constraint(
      R"("tool_choice": {"type": "allowed_tools", "mode": "auto",
                         "tools": [{"type": "function", "name": "get_weather"}]})");
  EXPECT_EQ(allowed.kind, Kind::kOptional);
  EXPECT_EQ(allowed.tools->size(), 1U);
}

struct ResponsesRefusal {
  std::string fields, param, says;
};

std::vector<ResponsesRefusal> responses_refusals() {
  return {
      {R"("model": "demo")", "input", "missing"},
      {R"("input": [])", "input", "not empty"},
      {R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
       "input[0].content[0].type", "input_image"},
      {R"("input": [{"type": "item_reference", "id": "x"}])", "input[0].id", "no item"},
      {R"("input": [{"type": "web_search_call", "id": "x"}])", "input", "not empty"},
      {R"("input": [{"role": "tool", "content": "x"}])", "input[0].role", "user, assistant"},
      {R"("input": [{"role": "user", "contents": "x"}])", "input[0].contents",
       "did you mean 'content'"},
      {R"("input": [{"type": "function_call_output", "call_id": "a", "output": "x"}])", "input[0]",
       "none of the calls before it"},
      {R"("tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}, )" +
           kHelloInput,
       "tool_choice.type", "cannot be offered"},
      {R"("tools": [{"type": "web_search"}], "tool_choice": "required", )" + kHelloInput,
       "tool_choice", "no tools"},
      {R"("tools": [{"name": "f"}], )" + kHelloInput, "tools[0].type", "missing"},
      {R"("tools": [{"type": "function", "name": "f", "format": {"type": "text"}}], )" +
           kHelloInput,
       "tools[0].format", "another type"},
      {R"("tools": [{"type": "custom", "name": "f", "format": {"type": "ebnf"}}], )" + kHelloInput,
       "tools[0].format.type", "text or grammar"},
      {R"("tools": [{"type": "custom", "name": "f",
                     "format": {"type": "grammar", "syntax": "peg", "definition": "x"}}], )" +
           kHelloInput,
       "tools[0].format.syntax", "lark or regex"},
      {R"("tools": [{"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "lark"}}], )" +
           kHelloInput,
       "tools[0].format.definition", "missing"},
      {R"("tools": [{"type": "custom", "name": "f"}, {"type": "function", "name": "f"}], )" +
           kHelloInput,
       "tools[1]", "as another tool is"},
      {R"("tools": [{"type": "namespace", "name": "a"}], )" + kHelloInput, "tools[0].tools",
       "missing"},
      {R"("tools": [{"type": "namespace", "name": "a", "tools": [{"type": "function"}]}], )" +
           kHelloInput,
       "tools[0].tools[0].name", "missing"},
      {R"("include": [1], )" + kHelloInput, "include[0]", "a string"},
      {R"("tools": [{"type": "function", "function": {"name": "f"}}], )" + kHelloInput,
       "tools[0].function", "unknown field"},
      {R"("tool_choice": {"type": "mcp", "server_label": "x"}, )" + kHelloInput,
       "tool_choice.server_label", "unknown field"},
      {R"("tool_choice": "required", )" + kHelloInput, "tool_choice", "no tools"},
      {R"("background": true, )" + kHelloInput, "background", "leave it out"},
      {R"("conversation": "conv_1", )" + kHelloInput, "conversation", "leave it out"},
      {R"("truncation": "middle", )" + kHelloInput, "truncation", "auto or disabled"},
      {R"("top_logprobs": 21, )" + kHelloInput, "top_logprobs", "[0, 20]"},
      {R"("stop": [""], )" + kHelloInput, "stop[0]", "1 to 256 bytes"},
      {R"("min_p": 2, )" + kHelloInput, "min_p", "[0, 1]"},
      {R"("max_tokens": 3, )" + kHelloInput, "max_tokens", "unknown field"},
      {R"("temprature": 1, )" + kHelloInput, "temprature", "did you mean 'temperature'"},
      {R"("text": {"format": {"type": "grammar"}}, )" + kHelloInput, "text.format.type",
       "json_schema"},
      {R"("reasoning": {"effort": "huge"}, )" + kHelloInput, "reasoning.effort", "xhigh"},
      {R"("max_output_tokens": 8192, )" + kHelloInput, "max_output_tokens", "at most"},
      {R"("metadata": {"a": 1}, )" + kHelloInput, "metadata", "texts"},
      {R"("metadata": {"a": ")" + std::string(513, 'x') + R"("}, )" + kHelloInput, "metadata",
       "512"},
      {R"("tool_choice": "none", "tools": [{"type": "function", "name": "f", "description": ")" +
           std::string(1 << 20, 'x') + R"("}], )" + kHelloInput,
       "tools", "1048576"},
  };
}

TEST(ResponsesRequest, numbers_are_repeated_as_they_were_sent) {
  const auto sent =
      json::parse(
          "{" +
          accepted(parse_response_body(R"("temperature": 0.7, "top_p": 0.95, )" + kHelloInput))
              .form.response->settings +
          "}")
          .value();
  EXPECT_EQ(json::dump(sent["temperature"]), "0.7");
  EXPECT_EQ(json::dump(sent["top_p"]), "0.95");
  ServedModel model = responses_model();
  model.sampling_defaults.temperature = 0.6f;
  const auto made = accepted(parse_responses_request("{" + kHelloInput + "}", model, {}));
  const auto defaults = json::parse("{" + made.form.response->settings + "}").value();
  EXPECT_EQ(json::dump(defaults["temperature"]), "0.6");
  EXPECT_EQ(defaults["top_p"].get<double>(), 1.0);
}

TEST(ResponsesRequest, sampling_fields_are_those_of_chat) {
  const GenerationRequest made = accepted(parse_response_body(
      R"("top_k": 5, "min_p": 0.125, "repetition_penalty": 1.5, "frequency_penalty": 0.5,
         "presence_penalty": -0.5, "seed": 7, "stop": ["a", "b"], "stop_token_ids": [9],
         "logit_bias": {"3": -100}, )" +
      kHelloInput));
  const core::SamplingParams& sampling = made.items.at(0).sampling;
  EXPECT_EQ(sampling.top_k, 5);
  EXPECT_EQ(sampling.min_p, 0.125f);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(sampling.presence_penalty, -0.5f);
  EXPECT_EQ(sampling.seed, 7U);
  EXPECT_EQ(made.items[0].stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(sampling.stop_token_ids, std::vector<int32_t>{9});
  ASSERT_EQ(sampling.logit_bias.size(), 1U);
  EXPECT_EQ(sampling.logit_bias[0].first, 3);
}

TEST(ResponsesRequest, what_asks_for_nothing_in_the_answer_changes_nothing) {
  for (const char* field :
       {R"("service_tier": "priority")", R"("truncation": "auto")", R"("max_tool_calls": 3)",
        R"("text": {"verbosity": "low"})", R"("reasoning": {"summary": "none"})",
        R"("prompt_cache_retention": "24h")", R"("client_metadata": {"a": {"b": 1}})",
        R"("session_id": "s")", R"("include": ["web_search_call.action.sources"])",
        R"("context_management": [{"type": "compaction", "compact_threshold": 9}])",
        R"("stream_options": {"include_obfuscation": true})", R"("top_logprobs": 3)"}) {
    expect_chat_prompt(field + std::string(", ") + kHelloInput,
                       R"("messages": [{"role": "user", "content": "Hello"}])");
    EXPECT_FALSE(
        accepted(parse_response_body(field + std::string(", ") + kHelloInput)).form.logprobs);
  }
}

TEST(ResponsesRequest, include_asks_for_what_the_answer_holds) {
  const GenerationRequest made = accepted(parse_response_body(
      R"("include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
         "top_logprobs": 3, )" +
      kHelloInput));
  EXPECT_TRUE(made.form.response->has_encrypted_reasoning);
  EXPECT_TRUE(made.form.logprobs);
  EXPECT_EQ(made.form.top_logprobs, 3);
  EXPECT_TRUE(made.items.at(0).sampling.return_logprobs);
  EXPECT_EQ(made.items[0].sampling.num_top_logprobs, 3);
}

TEST(ResponsesRequest, a_reference_is_the_stored_item) {
  expect_chat_prompt(
      R"("input": [{"role": "user", "content": "1"}, {"type": "item_reference", "id": "msg_1"},
                                  {"role": "user", "content": "2"}])",
      R"("messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "3"},
                                     {"role": "user", "content": "2"}])");
}

TEST(ResponsesRequest, calls_of_other_servers_tools_become_calls_of_functions) {
  expect_chat_prompt(kFlatTool + R"("input": [
        {"role": "user", "content": "List."},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "a", "status": "completed",
         "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "a", "output": "x.py"},
        {"role": "assistant", "content": "One file."},
        {"type": "apply_patch_call", "call_id": "b", "operation": {"type": "delete_file", "path": "x.py"}},
        {"type": "apply_patch_call_output", "call_id": "b", "status": "completed",
         "output": [{"type": "output_text", "text": "gone"}, {"type": "input_image", "image_url": "x"}]}])",
                     kChatTool + R"("messages": [
        {"role": "user", "content": "List."},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function":
          {"name": "local_shell", "arguments": "{\"type\":\"exec\",\"command\":[\"ls\"]}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "x.py"},
        {"role": "assistant", "content": "One file.", "tool_calls": [{"id": "b", "type": "function", "function":
          {"name": "apply_patch", "arguments": "{\"type\":\"delete_file\",\"path\":\"x.py\"}"}}]},
        {"role": "tool", "tool_call_id": "b", "content": "gone\n[image]"}])");
}

// What another server ran, or wrote down for itself, says nothing to this model.
TEST(ResponsesRequest, items_that_a_model_cannot_read_are_left_out) {
  expect_chat_prompt(
      R"("input": [{"role": "user", "content": "1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBOR"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAB"},
        {"type": "compaction", "encrypted_content": "gAAAAB"}, {"type": "ghost_snapshot", "ghost_commit": {}},
        {"type": "computer_call", "call_id": "never answered", "action": {"type": "screenshot"}},
        {"type": "shell_call_output", "call_id": "never asked", "output": "x"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": [{"type": "text", "text": "2"}]}])",
      R"("messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "No."},
                      {"role": "user", "content": "2"}])");
}

TEST(ResponsesRequest, what_is_not_here_is_refused_by_name) {
  for (const ResponsesRefusal& refusal : responses_refusals()) {
    const ApiError error = refused(parse_response_body(refusal.fields));
    EXPECT_EQ(error.param, refusal.param) << refusal.fields << "\n" << error.message;
    EXPECT_THAT(error.message, testing::HasSubstr(refusal.says)) << refusal.fields;
  }
}

TEST(ResponsesRequest, without_a_store_nothing_is_kept_or_found) {
  const auto parse = [](const std::string& fields) {
    return parse_responses_request("{" + fields + kHelloInput + "}", responses_model(), {});
  };
  EXPECT_FALSE(accepted(parse("")).form.response->is_stored);
  EXPECT_FALSE(accepted(parse(R"("store": true, )")).form.response->is_stored);
  EXPECT_EQ(refused(parse(R"("previous_response_id": "resp_1", )")).status, 404);
}

}  // namespace
}  // namespace fathom::api
