#include "api/output_text_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::accepted;
using tests::demo_served_model;
using tests::refused;

ServedModel model_of(text::ChatFormat format) {
  ServedModel model = demo_served_model();
  model.chat_format = format;
  return model;
}

TEST(CallTextRequest, takes_tools_as_chat_does) {
  const CallTextRequest request = accepted(parse_call_text_request(
      R"({"text": "hi", "tool_call_parser": "deepseekv31",
          "tools": [{"type": "function", "function": {"name": "f"}}, {"name": "g"}]})",
      demo_served_model()));
  EXPECT_EQ(request.text, "hi");
  EXPECT_EQ(request.chat_format, text::ChatFormat::kV31);
  EXPECT_THAT(request.functions, ElementsAre("f", "g"));
}

TEST(CallTextRequest, knows_the_parser_of_the_served_format_alone) {
  using text::ChatFormat;
  const std::pair<ChatFormat, std::string> kNames[] = {
      {ChatFormat::kV3, "deepseekv3"},   {ChatFormat::kV3_0324, "deepseekv3"},
      {ChatFormat::kR1, "deepseekv3"},   {ChatFormat::kR1_0528, "deepseekv3"},
      {ChatFormat::kV31, "deepseekv31"}, {ChatFormat::kV32, "deepseekv32"},
      {ChatFormat::kKimiK2, "kimi_k2"}};
  for (const auto& [format, name] : kNames) {
    for (const auto& [other_format, other] : kNames) {
      const auto parsed = parse_call_text_request(
          R"({"text": "", "tool_call_parser": ")" + other + "\"}", model_of(format));
      if (name == other) {
        EXPECT_EQ(accepted(parsed).chat_format, format);
      } else {
        EXPECT_EQ(refused(parsed).param, "tool_call_parser");
        EXPECT_THAT(refused(parsed).message, HasSubstr(name));
      }
    }
  }
  for (const ChatFormat format : {ChatFormat::kV2, ChatFormat::kMoonlight}) {
    EXPECT_THAT(refused(parse_call_text_request(R"({"text": ""})", model_of(format))).message,
                HasSubstr("has no tool calls"));
  }
}

TEST(ReasoningTextRequest, knows_the_parsers_of_the_served_format_alone) {
  using text::ChatFormat;
  const auto parse = [](ChatFormat format, const std::string& name) {
    return parse_reasoning_text_request(R"({"text": "hi", "reasoning_parser": ")" + name + "\"}",
                                        model_of(format));
  };
  for (const ChatFormat format :
       {ChatFormat::kR1, ChatFormat::kR1_0528, ChatFormat::kV31, ChatFormat::kV32}) {
    EXPECT_TRUE(accepted(parse(format, "deepseek-r1")).starts_in_reasoning);
  }
  EXPECT_FALSE(accepted(parse(ChatFormat::kV31, "deepseek-v3")).starts_in_reasoning);
  EXPECT_EQ(refused(parse(ChatFormat::kR1, "deepseek-v3")).param, "reasoning_parser");
  EXPECT_EQ(refused(parse(ChatFormat::kV31, "kimi")).param, "reasoning_parser");
  for (const ChatFormat format : {ChatFormat::kV2, ChatFormat::kV3, ChatFormat::kKimiK2}) {
    EXPECT_THAT(refused(parse(format, "deepseek-r1")).message, HasSubstr("has no reasoning"));
  }
}

TEST(ReasoningTextRequest, wants_both_fields_and_a_chat_format) {
  EXPECT_EQ(refused(parse_reasoning_text_request(R"({"text": "a"})", demo_served_model())).message,
            "reasoning_parser is missing");
  EXPECT_EQ(refused(parse_call_text_request("{}", demo_served_model())).message, "text is missing");
  ServedModel model = demo_served_model();
  model.chat_format.reset();
  model.chat_format_problem = "no template";
  EXPECT_THAT(refused(parse_call_text_request(R"({"text": ""})", model)).message,
              HasSubstr("no template"));
}

}  // namespace
}  // namespace fathom::api
