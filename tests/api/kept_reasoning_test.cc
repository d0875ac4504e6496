// What earlier answers thought, on every endpoint that takes a conversation: in V3.2's format the model reads it behind
// the last user's message, and nowhere else.

#include <gtest/gtest.h>

#include <string>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted;
using tests::demo_served_model;

ServedModel thinking_model(text::ChatFormat format) {
  ServedModel model = demo_served_model();
  model.chat_format = format;
  model.thinks_by_default = true;
  return model;
}

std::string prompt_of(const GenerationRequest& request) {
  return tests::demo_tokenizer()->decode(request.items.front().prompt,
                                         /*skip_special_tokens=*/false);
}

// Old thoughts, a question, new thoughts, a call and its result: in each form.
std::string chat_with(const std::string& field) {
  return R"({"max_tokens":1,"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":"a",")" +
         field + R"(":"old"},{"role":"user","content":"r"},
      {"role":"assistant","content":"","tool_calls":[{"id":"i","type":"function",
        "function":{"name":"f","arguments":"{}"}}],")" +
         field + R"(":"new"},{"role":"tool","tool_call_id":"i","content":"1"}]})";
}

std::string blocks_with(const std::string& thoughts) {
  return R"({"max_tokens":1,"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"old","signature":""},
      {"type":"text","text":"a"}]},{"role":"user","content":"r"},
    {"role":"assistant","content":[)" +
         thoughts + R"(,{"type":"tool_use","id":"i","name":"f","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":"1"}]}]})";
}

std::string items_with(const std::string& thoughts) {
  return R"({"max_output_tokens":1,"input":[{"role":"user","content":"q"},
      {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"old"}]},
      {"role":"assistant","content":"a"},{"role":"user","content":"r"},
      {"type":"reasoning","summary":[],)" +
         thoughts + R"(},{"type":"function_call","call_id":"i","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"i","output":"1"}]})";
}

constexpr const char* kPrompt =
    "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜>"
    "<｜User｜>r<｜Assistant｜><think>new</think>\n\n<｜DSML｜function_calls>\n"
    "<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    "<｜end▁of▁sentence｜>\n\n<function_results>\n<result>1</result>\n</"
    "function_results>\n\n<think>";

TEST(KeptReasoning, is_read_behind_the_last_user_in_every_form) {
  const ServedModel model = thinking_model(text::ChatFormat::kV32);
  for (const char* const field : {"reasoning_content", "reasoning"}) {
    const GenerationRequest chat = accepted(parse_chat_request(chat_with(field), model));
    EXPECT_EQ(prompt_of(chat), kPrompt) << field;
    EXPECT_TRUE(chat.chat.starts_in_reasoning) << "behind a result as behind a question";
  }
  for (
      const char* const thoughts :
      {R"({"type":"thinking","thinking":"n","signature":""},{"type":"redacted_thinking","data":"x"},
           {"type":"thinking","thinking":"ew","signature":"msg_1"})",
       R"({"type":"thinking","thinking":"new","signature":"b2xk"})",
       R"({"type":"thinking","thinking":"","signature":"bmV3"})",
       R"({"type":"thinking","signature":"bmV3"})"}) {
    EXPECT_EQ(prompt_of(accepted(parse_messages_request(blocks_with(thoughts), model))), kPrompt)
        << thoughts;
  }
  for (const char* const thoughts :
       {R"("content":[{"type":"reasoning_text","text":"n"},{"type":"reasoning_text","text":"ew"}])",
        R"("encrypted_content":"bmV3")"}) {
    EXPECT_EQ(prompt_of(accepted(parse_responses_request(items_with(thoughts), model, {}))),
              kPrompt)
        << thoughts;
  }
}

// Another server's secret is no text.
TEST(KeptReasoning, of_another_server_is_left_out) {
  const ServedModel model = thinking_model(text::ChatFormat::kV32);
  for (const GenerationRequest& request :
       {accepted(
            parse_responses_request(items_with(R"("encrypted_content":"gAAAAAB/")"), model, {})),
        accepted(parse_messages_request(
            blocks_with(R"({"type":"thinking","thinking":"","signature":"gAAAAAB/"})"), model))}) {
    const std::string prompt = prompt_of(request);
    EXPECT_NE(prompt.find("<｜Assistant｜><think></think>\n\n<｜DSML｜"), std::string::npos)
        << prompt;
  }
}

TEST(KeptReasoning, is_left_out_by_other_formats_and_without_thinking) {
  ServedModel model = thinking_model(text::ChatFormat::kV31);
  EXPECT_EQ(
      prompt_of(accepted(parse_chat_request(chat_with("reasoning_content"), model))).find("new"),
      std::string::npos);
  model = thinking_model(text::ChatFormat::kV32);
  model.thinks_by_default = false;
  const GenerationRequest chat =
      accepted(parse_chat_request(chat_with("reasoning_content"), model));
  EXPECT_EQ(prompt_of(chat).find("new"), std::string::npos);
  EXPECT_FALSE(chat.chat.starts_in_reasoning);
}

TEST(KeptReasoning, stands_before_an_answer_that_is_continued) {
  const GenerationRequest chat = accepted(parse_chat_request(
      R"({"max_tokens":1,"continue_final_message":true,"add_generation_prompt":false,"messages":[
          {"role":"user","content":"q"},
          {"role":"assistant","content":"a","reasoning_content":"r"}]})",
      thinking_model(text::ChatFormat::kV32)));
  EXPECT_TRUE(prompt_of(chat).ends_with("<｜Assistant｜><think>r</think>a")) << prompt_of(chat);
  EXPECT_FALSE(chat.chat.starts_in_reasoning);
}

}  // namespace
}  // namespace fathom::api
