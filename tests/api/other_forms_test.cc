// What clients of other servers send in a chat, beside OpenAI's form, and that the same is read of other forms.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "api/score_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api::tests {
namespace {

using ::testing::HasSubstr;

const std::string kHi = R"({"role": "user", "content": "hi"})";

std::string body_of(const std::string& messages, const std::string& more = "") {
  return R"({"messages": [)" + messages + "]" + (more.empty() ? "" : ", " + more) + "}";
}

GenerationRequest take(const std::string& messages, const std::string& more = "") {
  return accepted(parse_chat_request(body_of(messages, more), demo_served_model()));
}

ApiError refuse(const std::string& messages, const std::string& more = "") {
  return refused(parse_chat_request(body_of(messages, more), demo_served_model()));
}

std::string prompt_of(const GenerationRequest& request) {
  return demo_tokenizer()->decode(request.items.at(0).prompt, /*skip_special_tokens=*/false);
}

TEST(OtherForms, an_answer_or_a_result_may_be_empty) {
  const std::string null_answer = R"({"role": "assistant", "content": null})";
  EXPECT_EQ(prompt_of(take(kHi + ", " + null_answer + ", " + kHi)),
            prompt_of(take(kHi + R"(, {"role": "assistant", "content": ""}, )" + kHi)));
  const std::string call =
      R"({"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function",
          "function": {"name": "f", "arguments": "{}"}}]})";
  EXPECT_EQ(prompt_of(take(kHi + ", " + call +
                           R"(, {"role": "tool", "tool_call_id": "a", "content": null})")),
            prompt_of(take(kHi + ", " + call +
                           R"(, {"role": "tool", "tool_call_id": "a", "content": ""})")));
  EXPECT_EQ(refuse(R"({"role": "user", "content": null})").param, "messages[0].content");
  EXPECT_EQ(refuse(R"({"role": "system"})").param, "messages[0].content");
}

TEST(OtherForms, parts_have_the_types_of_a_response) {
  const std::string plain =
      prompt_of(take(kHi + R"(, {"role": "assistant", "content": "yes"}, )" + kHi));
  const std::string parts =
      R"({"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
         {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "reasoning", "reasoning": "hm", "summary": []},
            {"type": "output_text", "text": "yes", "annotations": [], "logprobs": []}]}, )";
  EXPECT_EQ(prompt_of(take(parts + kHi)), plain);
}

TEST(OtherForms, histories_keep_what_their_clients_added) {
  EXPECT_EQ(prompt_of(take(R"({"role": "user", "content": "hi", "timestamp": 1, "info": {"a": 1},
                              "weight": 1, "finish_reason": "stop"})")),
            prompt_of(take(kHi)));
}

TEST(OtherForms, hints_change_nothing) {
  const std::string plain = prompt_of(take(kHi));
  for (const char* hint :
       {R"("verbosity": "high")", R"("service_tier": "flex")", R"("service_tier": "priority")",
        R"("provider": {"order": ["a"]})", R"("session_id": "s")", R"("chat_id": "c")",
        R"("keep_alive": "5m")", R"("timeout": 600)", R"("options": {"num_ctx": 8192})"}) {
    EXPECT_EQ(prompt_of(take(kHi, hint)), plain) << hint;
  }
  EXPECT_EQ(refuse(kHi, R"("options": {"temperature": 0.2})").param, "options.temperature");
}

TEST(OtherForms, usage_and_reasoning_are_asked_for_in_other_words) {
  EXPECT_TRUE(take(kHi, R"("stream": true, "usage": {"include": true})").form.include_usage);
  EXPECT_FALSE(take(kHi, R"("stream": true, "usage": {"include": false})").form.include_usage);
  EXPECT_FALSE(take(kHi, R"("reasoning": {"exclude": true})").chat.include_reasoning);
  EXPECT_TRUE(take(kHi, R"("reasoning": {"exclude": false})").chat.include_reasoning);
  EXPECT_EQ(refuse(kHi, R"("reasoning": {"exclude": true}, "include_reasoning": true)").param,
            "reasoning");
  EXPECT_EQ(refuse(kHi, R"("reasoning": {"exclude": true}, "separate_reasoning": false)").param,
            "reasoning");
  for (const char* on : {"true", R"("low")", R"("high")"}) {
    EXPECT_EQ(prompt_of(take(kHi, R"("think": )" + std::string(on))),
              prompt_of(take(kHi, R"("thinking": true)")));
  }
  EXPECT_EQ(prompt_of(take(kHi, R"("think": false)")),
            prompt_of(take(kHi, R"("thinking": false)")));
  EXPECT_EQ(refuse(kHi, R"("think": true, "thinking": false)").param, "think");
  EXPECT_EQ(refuse(kHi, R"("think": 1)").param, "think");
}

TEST(OtherForms, a_generation_prompt_is_there_where_nothing_is_continued) {
  const std::string open = kHi + R"(, {"role": "assistant", "content": "He"})";
  take(kHi, R"("add_generation_prompt": true)");
  take(open, R"("continue_final_message": true, "add_generation_prompt": false)");
  EXPECT_EQ(refuse(open, R"("continue_final_message": true, "add_generation_prompt": true)").param,
            "add_generation_prompt");
  EXPECT_EQ(refuse(kHi, R"("add_generation_prompt": false)").param, "add_generation_prompt");
}

TEST(OtherForms, no_share_of_the_tokens_is_the_likeliest_token) {
  EXPECT_EQ(take(kHi, R"("top_p": 0)").items.at(0).sampling.top_p,
            std::numeric_limits<float>::min());
  EXPECT_EQ(refuse(kHi, R"("top_p": -0.1)").param, "top_p");
}

TEST(OtherForms, half_a_surrogate_pair_is_the_replacement_character) {
  EXPECT_EQ(prompt_of(take(R"({"role": "user", "content": "cut \ud83d"})")),
            prompt_of(take("{\"role\": \"user\", \"content\": \"cut \xef\xbf\xbd\"}")));
}

TEST(OtherForms, any_model_is_answered_for_where_the_operator_says_so) {
  ServedModel model = demo_served_model();
  const std::string body = body_of(kHi, R"("model": "gpt-4.1")");
  EXPECT_EQ(refused(parse_chat_request(body, model)).code, "model_not_found");
  model.takes_any_name = true;
  EXPECT_EQ(accepted(parse_chat_request(body, model)).form.model, "demo");
}

TEST(OtherForms, a_score_of_no_items_has_none) {
  EXPECT_TRUE(accepted(parse_score_request(R"({"query": "a", "items": [], "label_token_ids": [5]})",
                                           demo_served_model()))
                  .items.empty());
}

const std::string kFunctions = R"("functions": [{"name": "f", "description": "d",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}])";
const std::string kOneTool = R"("tools": [{"type": "function", "function": {"name": "f",
    "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}])";

TEST(OtherForms, functions_are_tools_of_which_one_is_called) {
  const GenerationRequest request = take(kHi, kFunctions);
  EXPECT_EQ(prompt_of(request), prompt_of(take(kHi, kOneTool)));
  EXPECT_TRUE(request.form.calls_functions);
  EXPECT_TRUE(request.chat.parse_tools);
  EXPECT_EQ(request.chat.tool_constraint.kind, ToolConstraint::Kind::kOptional);
  EXPECT_FALSE(request.chat.tool_constraint.parallel);
  EXPECT_FALSE(take(kHi, kOneTool).form.calls_functions);
  EXPECT_EQ(take(kHi, kFunctions + R"(, "function_call": {"name": "f"})").chat.tool_constraint.kind,
            ToolConstraint::Kind::kRequired);
  EXPECT_EQ(prompt_of(take(kHi, kFunctions + R"(, "function_call": "none")")),
            prompt_of(take(kHi)));
  EXPECT_FALSE(take(kHi, R"("functions": [], "function_call": "none")").form.calls_functions);
}

TEST(OtherForms, a_history_of_functions_is_one_of_tools) {
  const std::string functions = kHi + R"(, {"role": "assistant", "content": null,
      "function_call": {"name": "f", "arguments": "{\"x\": 1}"}},
      {"role": "function", "name": "f", "content": "42"})";
  const std::string tools = kHi + R"(, {"role": "assistant", "content": null, "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "a", "content": "42"})";
  EXPECT_EQ(prompt_of(take(functions, kFunctions)), prompt_of(take(tools, kOneTool)));
}

// Some templates show a tool whole, as chat's clients send it.
TEST(OtherForms, tools_are_shown_alike_on_every_endpoint) {
  const std::string names = R"("name": "f", "description": "It.", )",
                    schema = R"({"type": "object"})";
  const std::string function = "{" + names + R"("parameters": )" + schema + "}";
  const std::string hi = R"("model": "default", "messages": [)" + kHi + "], ";
  ServedModel model = demo_served_model();
  for (const text::ChatFormatTraits& format : text::chat_formats()) {
    if (!format.takes_tools) continue;
    model.chat_format = format.format;
    const auto chat = accepted(parse_chat_request(
        "{" + hi + R"("tools": [{"type": "function", "function": )" + function + "}]}", model));
    const auto bare =
        accepted(parse_chat_request("{" + hi + R"("functions": [)" + function + "]}", model));
    const auto messages =
        accepted(parse_messages_request("{" + hi + R"("max_tokens": 9, "tools": [{)" + names +
                                            R"("input_schema": )" + schema + "}]}",
                                        model));
    const auto response = accepted(parse_responses_request(
        R"({"input": "hi", "tools": [{"type": "function", )" + function.substr(1) + "]}", model,
        {}));
    EXPECT_EQ(prompt_of(bare), prompt_of(chat)) << format.name;
    EXPECT_EQ(prompt_of(messages), prompt_of(chat)) << format.name;
    EXPECT_EQ(prompt_of(response), prompt_of(chat)) << format.name;
  }
}

TEST(OtherForms, functions_that_do_not_fit_are_told_why) {
  EXPECT_EQ(refuse(kHi, kFunctions + ", " + kOneTool).param, "functions");
  EXPECT_EQ(refuse(kHi, kFunctions + R"(, "tool_choice": "auto")").param, "functions");
  EXPECT_EQ(refuse(kHi, R"("function_call": "auto")").param, "function_call");
  EXPECT_EQ(refuse(kHi, kFunctions + R"(, "function_call": "required")").param, "function_call");
  EXPECT_EQ(refuse(kHi, kFunctions + R"(, "function_call": {"name": "g"})").param, "function_call");
  EXPECT_EQ(refuse(kHi, R"("functions": [{"description": "d"}])").param, "functions[0].name");
  EXPECT_EQ(refuse(kHi + R"(, {"role": "function", "name": "f", "content": "1"})").param,
            "messages[1].name");
  EXPECT_EQ(refuse(R"({"role": "user", "content": "x", "function_call": {"name": "f"}})").param,
            "messages[0].function_call");
}

}  // namespace
}  // namespace fathom::api::tests
