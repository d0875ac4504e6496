// Calls of custom tools in chat: the text that a tool is given, streamed or whole.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/answer/fed_answer.h"

namespace fathom::answer {
namespace {

constexpr const char* kTwoCalls =
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>patch<｜tool▁sep｜>{\"input\": "
    "\"a\\nb\"}<｜tool▁call▁end｜>"
    "<｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"input\": "
    "\"x\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";

api::ShownForm chat_with_custom_tool() {
  api::ShownForm form = tests::shown_form(api::Endpoint::kChat);
  form.tool_kinds = std::make_shared<const api::ToolKinds>(
      api::ToolKinds{{"patch", {.is_custom = true, .name = "patch", .name_space = ""}}});
  return form;
}

ChoiceSetup choice() { return tests::parsed_choice({.reasoning = false}); }

TEST(CustomCalls, have_their_input_in_place_of_arguments) {
  api::ShownForm form = chat_with_custom_tool();
  form.stream = false;
  tests::FedAnswer whole(form, choice());
  whole.feed(kTwoCalls, 0);
  whole.end(core::FinishReason::kStop);
  const json::Value answer = json::parse(whole.body()).value()["choices"][0];
  const json::Value& calls = answer["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(json::dump(calls[0]["custom"]), R"({"name":"patch","input":"a\nb"})");
  EXPECT_EQ(calls[0]["type"].get<std::string>(), "custom");
  EXPECT_FALSE(calls[0].contains("function"));
  EXPECT_EQ(json::dump(calls[1]["function"]), R"({"name":"get","arguments":"{\"input\": \"x\"}"})");
  EXPECT_EQ(answer["finish_reason"].get<std::string>(), "tool_calls");
  EXPECT_TRUE(answer["message"]["refusal"].is_null());
}

TEST(CustomCalls, stream_their_input_as_it_comes) {
  for (const size_t step_tokens : {1U, 2U, 100U}) {
    tests::FedAnswer streamed(chat_with_custom_tool(), choice());
    std::string events = streamed.feed(kTwoCalls, step_tokens);
    streamed.end(core::FinishReason::kStop);
    events += streamed.last_events();
    std::string input, arguments;
    for (size_t at = events.find("data: {"); at != std::string::npos;
         at = events.find("data: {", at + 1)) {
      const json::Value data =
          json::parse(events.substr(at + 6, events.find('\n', at) - at - 6)).value();
      const json::Value delta =
          data["choices"].empty() ? json::Value::object() : data["choices"][0]["delta"];
      for (const json::Value& call : delta.value("tool_calls", json::Value::array())) {
        EXPECT_EQ(call.contains("custom"), call["index"].get<int>() == 0);
        if (call.contains("custom")) input += call["custom"].value("input", "");
        if (call.contains("function")) arguments += call["function"].value("arguments", "");
      }
    }
    EXPECT_EQ(input, "a\nb");
    EXPECT_EQ(arguments, R"({"input": "x"})");
  }
}

TEST(CustomCalls, without_calls_a_message_has_no_list_of_them) {
  api::ShownForm form = tests::shown_form(api::Endpoint::kChat);
  form.stream = false;
  tests::FedAnswer whole(form, choice());
  whole.feed("Hello", 0);
  whole.end(core::FinishReason::kStop);
  EXPECT_FALSE(json::parse(whole.body()).value()["choices"][0]["message"].contains("tool_calls"));
}

}  // namespace
}  // namespace fathom::answer
