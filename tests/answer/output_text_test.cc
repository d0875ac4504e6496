// The answers of /parse_function_call and /separate_reasoning, for text as the published formats have it.

#include "answer/output_text.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace fathom::answer {
namespace {

using text::ChatFormat;

json::Value calls_in(const api::CallTextRequest& request) {
  return json::parse(call_text_answer(request)).value();
}

json::Value read_call(int index, const char* name, const char* parameters) {
  return {{"tool_index", index}, {"name", name}, {"parameters", parameters}};
}

TEST(OutputText, finds_the_calls_of_each_format) {
  const std::string v31 =
      "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": "
      "\"Rome\"}"
      "<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>";
  EXPECT_EQ(
      calls_in({.text = v31, .chat_format = ChatFormat::kV31}),
      (json::Value{{"normal_text", "Let me see."},
                   {"calls", json::Value::array({read_call(0, "weather", R"({"city": "Rome"})"),
                                                 read_call(1, "time", "{}")})}}));
  const std::string v3 =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"
      "\"city\": "
      "\"Rome\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  EXPECT_EQ(calls_in({.text = v3, .chat_format = ChatFormat::kV3})["calls"],
            json::Value::array({read_call(0, "weather", R"({"city": "Rome"})")}));
  const std::string kimi =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_"
      "begin|>"
      "{\"city\": \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>";
  EXPECT_EQ(calls_in({.text = kimi, .chat_format = ChatFormat::kKimiK2})["calls"],
            json::Value::array({read_call(0, "weather", R"({"city": "Rome"})")}));
}

TEST(OutputText, leaves_out_calls_of_functions_that_are_not_among_the_tools) {
  const std::string text =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  EXPECT_EQ(
      calls_in({.text = text, .chat_format = ChatFormat::kV31, .functions = {"g"}}),
      (json::Value{{"normal_text", ""}, {"calls", json::Value::array({read_call(0, "g", "{}")})}}));
}

TEST(OutputText, text_without_calls_is_text_with_its_reasoning) {
  EXPECT_EQ(
      calls_in({.text = "<think>a</think>b \"c\"\n", .chat_format = ChatFormat::kV31}),
      (json::Value{{"normal_text", "<think>a</think>b \"c\"\n"}, {"calls", json::Value::array()}}));
}

json::Value parts_of(const std::string& text, bool starts_in_reasoning) {
  return json::parse(reasoning_text_answer({.text = text,
                                            .chat_format = ChatFormat::kV31,
                                            .starts_in_reasoning = starts_in_reasoning}))
      .value();
}

json::Value parts(const char* reasoning, const char* text) {
  return {{"reasoning_text", reasoning}, {"text", text}};
}

TEST(OutputText, separates_reasoning_that_is_open_or_opened) {
  EXPECT_EQ(parts_of("six plus one</think>7", true), parts("six plus one", "7"));
  EXPECT_EQ(parts_of("<think>six plus one</think>7", true), parts("six plus one", "7"));
  EXPECT_EQ(parts_of("it goes on", true), parts("it goes on", ""));
  EXPECT_EQ(parts_of("<think>six plus one</think>7", false), parts("six plus one", "7"));
  EXPECT_EQ(parts_of("no reasoning", false), parts("", "no reasoning"));
}

TEST(OutputText, markers_of_calls_are_text_where_reasoning_is_asked_for) {
  const std::string call = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}";
  EXPECT_EQ(parts_of("a</think>" + call, true), parts("a", call.c_str()));
}

}  // namespace
}  // namespace fathom::answer
