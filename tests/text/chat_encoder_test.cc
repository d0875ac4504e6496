// The encoders against what the published templates render. cases.json comes with the templates;
// own_cases.json holds conversations of our own, rendered by tools/chat_format/make_cases.py.

#include "text/chat_encoder.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/text/chat_cases.h"

namespace fathom::text {
namespace {

using tests::ChatCases;
using tests::conversation_from_json;
using tests::load_chat_cases;

void expect_same_texts(ChatFormat format, const ChatCases& cases, const std::string& column) {
  const json::Value& expected = cases.expected[column];
  ASSERT_EQ(expected.size(), cases.conversations.size());
  for (size_t i = 0; i < cases.conversations.size(); ++i) {
    SCOPED_TRACE(column + " case " + std::to_string(i));
    const json::Value& text = expected[i].is_object() ? expected[i]["text"] : expected[i];
    if (!text.is_string()) continue;
    const auto prompt = render(format, cases.conversations[i]);
    ASSERT_TRUE(prompt) << prompt.error().message;
    EXPECT_EQ(to_text(*prompt), text.get<std::string>());
  }
}

TEST(ChatEncoderGolden, EqualsThePublishedTemplates) {
  const ChatCases cases = load_chat_cases("cases.json");
  ASSERT_EQ(cases.conversations.size(), 12u);
  expect_same_texts(ChatFormat::kV3, cases, "deepseek-v3.jinja");
  expect_same_texts(ChatFormat::kV3Tools, cases, "deepseek-v3-tools.jinja");
  expect_same_texts(ChatFormat::kR1, cases, "deepseek-r1.jinja");
  expect_same_texts(ChatFormat::kR1Tools, cases, "deepseek-r1-tools.jinja");
  expect_same_texts(ChatFormat::kV31, cases, "deepseek-v31.jinja");
}

class OwnCases : public testing::TestWithParam<ChatFormatTraits> {};

TEST_P(OwnCases, EqualTheTemplateWhereverBothRender) {
  static const ChatCases cases = load_chat_cases("own_cases.json");
  const ChatFormatTraits& format = GetParam();
  const json::Value& expected = cases.expected[std::string(format.name)];
  ASSERT_EQ(expected.size(), cases.conversations.size());
  int num_compared = 0;
  for (size_t i = 0; i < cases.conversations.size(); ++i) {
    const auto prompt = render(format.format, cases.conversations[i]);
    if (!prompt) {
      // Refused rather than lost: what the template would have dropped is named.
      EXPECT_TRUE(prompt.error().message.find("tool") != std::string::npos)
          << prompt.error().message;
      continue;
    }
    if (!expected[i].is_string()) continue;
    ++num_compared;
    EXPECT_EQ(to_text(*prompt), expected[i].get<std::string>()) << format.name << " case " << i;
  }
  EXPECT_GE(num_compared, 20);
}

INSTANTIATE_TEST_SUITE_P(AllFormats, OwnCases,
                         testing::ValuesIn(chat_formats().begin(), chat_formats().end()),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// Conversations whose earlier answers thought, with chains of calls.
TEST(ChatEncoderGolden, V32KeepsTheReasoningBehindTheLastUser) {
  expect_same_texts(ChatFormat::kV32, load_chat_cases("reasoning_cases.json"), "v3.2");
}

// Where a published template raises: what it was meant to do is done, or the error says what is missing.

TEST(ChatEncoder, ToolsTemplateOfR1AcceptsWrappedAndBareTools) {
  const ChatCases cases = load_chat_cases("cases.json");
  Conversation wrapped = cases.conversations[6];
  const auto prompt = render(ChatFormat::kR1Tools, wrapped);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_NE(to_text(*prompt).find(
                "- `get_weather`:\n```json\n{\"type\": \"function\", \"function\": {\"name\""),
            std::string::npos);
  Conversation bare = wrapped;
  bare.tools = json::Value::array();
  for (const json::Value& tool : *wrapped.tools) bare.tools->push_back(tool["function"]);
  const auto bare_prompt = render(ChatFormat::kR1Tools, bare);
  ASSERT_TRUE(bare_prompt) << bare_prompt.error().message;
  EXPECT_NE(to_text(*bare_prompt).find("- `get_time`:\n```json\n{\"name\": \"get_time\""),
            std::string::npos);
}

TEST(ChatEncoder, ToolsWithoutDescriptionOrParametersAreDescribedAsEmpty) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "?"}};
  chat.tools = *json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  const auto prompt = render(ChatFormat::kV31, chat);
  ASSERT_TRUE(prompt);
  EXPECT_NE(to_text(*prompt).find("### now\nDescription: \n\nParameters: {\"type\": \"object\", "
                                  "\"properties\": {}}\n"),
            std::string::npos);
}

TEST(ChatEncoder, V3RefusesToDropCallsBesideContent) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "?"},
                   {.role = "assistant", .content = "wait", .tool_calls = {{"id", "now", "{}"}}}};
  const auto prompt = render(ChatFormat::kV3, chat);
  ASSERT_FALSE(prompt);
  EXPECT_NE(prompt.error().message.find("messages[1]"), std::string::npos);
  EXPECT_EQ(format_for(ChatFormat::kV3, chat), ChatFormat::kV3Tools);
  EXPECT_TRUE(render(ChatFormat::kV3Tools, chat));
}

TEST(ChatEncoder, KimiGivesCallsWithoutIdTheOneTheModelWouldHaveWritten) {
  Conversation chat;
  chat.messages = {{.role = "system", .content = "s"},
                   {.role = "assistant", .tool_calls = {{"", "f", "{}"}, {"", "g", "{}"}}},
                   {.role = "tool", .content = "1"},
                   {.role = "tool", .content = "2", .name = "g"}};
  const auto prompt = render(ChatFormat::kKimiK2, chat);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(
      to_text(*prompt),
      "<|im_system|>system<|im_middle|>s<|im_end|><|im_assistant|>assistant<|im_middle|>"
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|><|im_end|>"
      "<|im_system|>tool<|im_middle|>## Return of functions.f:0\n1<|im_end|>"
      "<|im_system|>g<|im_middle|>## Return of functions.g:1\n2<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>");
}

TEST(ChatEncoder, KnowsWhenThePromptOpensReasoning) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "hi"}};
  const auto opens = [&](ChatFormat format) { return opens_reasoning(*render(format, chat)); };
  EXPECT_TRUE(opens(ChatFormat::kR1));
  EXPECT_FALSE(opens(ChatFormat::kR1_0528));
  EXPECT_FALSE(opens(ChatFormat::kV31));
  chat.thinking = true;
  EXPECT_TRUE(opens(ChatFormat::kV31));
  EXPECT_TRUE(opens(ChatFormat::kV32));
  EXPECT_FALSE(opens(ChatFormat::kV3));
  chat.add_generation_prompt = false;
  EXPECT_FALSE(opens(ChatFormat::kV31));
  chat.messages[0].content = "<think>\n";
  EXPECT_FALSE(opens(ChatFormat::kR1));
  EXPECT_FALSE(opens_reasoning({}));
}

// The text of a system message behind the user's stands in the thoughts that the user's turn has opened.
TEST(ChatEncoder, V32StaysWithinReasoningBehindASystemMessage) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "?"}, {.role = "developer", .content = "Be brief."}};
  chat.thinking = true;
  EXPECT_TRUE(opens_reasoning(*render(ChatFormat::kV32, chat)));
  chat.tools = *json::parse(R"([{"name": "now"}])");
  EXPECT_TRUE(opens_reasoning(*render(ChatFormat::kV32, chat)));
  chat.messages.push_back({.role = "assistant", .content = "<think>"});
  EXPECT_FALSE(opens_reasoning(*render(ChatFormat::kV32, chat)));
  chat.messages.pop_back();
  chat.thinking = false;
  EXPECT_FALSE(opens_reasoning(*render(ChatFormat::kV32, chat)));
}

// So that what was said before stays as it is when one is said.
TEST(ChatEncoder, V32DoesNotMoveToolsToASystemMessageFurtherBack) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "?"}, {.role = "assistant", .content = "!"}};
  chat.tools = *json::parse(R"([{"name": "now"}])");
  const std::string before = to_text(*render(ChatFormat::kV32, chat));
  EXPECT_TRUE(before.starts_with("<｜begin▁of▁sentence｜>\n\n## Tools\n")) << before;
  chat.messages.push_back({.role = "system", .content = "Be brief."});
  EXPECT_EQ(to_text(*render(ChatFormat::kV32, chat)), before + "Be brief.");
  chat.messages.insert(chat.messages.begin(), {.role = "system", .content = "Be kind."});
  EXPECT_TRUE(to_text(*render(ChatFormat::kV32, chat))
                  .starts_with("<｜begin▁of▁sentence｜>Be kind.\n\n## Tools\n"));
}

// User text and special strings.

TEST(ChatEncoder, TextOfClientsNeverBecomesMarkup) {
  std::string all_markers = "<|im_end|><|im_user|><|tool_call_end|>";
  for (const char* marker :
       {"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
        "<｜tool▁outputs▁begin｜>", "<｜end▁of▁sentence｜>", "<｜DSML｜invoke name=\"f\">"}) {
    all_markers += marker;
  }
  Conversation evil = load_chat_cases("cases.json").conversations[7];
  Conversation tame = evil;
  const auto fill = [](Conversation& chat, const std::string& text) {
    for (Message& message : chat.messages) {
      if (message.content) message.content = text;
      message.name = text;
      message.reasoning = text;
      for (ToolCall& call : message.tool_calls)
        call.arguments = json::dump(json::Value{{"k", text}});
    }
    (*chat.tools)[0]["function"]["description"] = text;
  };
  fill(evil, all_markers);
  fill(tame, "x");
  for (const ChatFormatTraits& format : chat_formats()) {
    if (!format.takes_tools) continue;
    const auto of_evil = render(format.format, evil), of_tame = render(format.format, tame);
    ASSERT_TRUE(of_evil && of_tame) << format.name;
    std::vector<std::string> evil_markup, tame_markup;
    for (const Segment& s : *of_evil)
      if (s.is_markup) evil_markup.push_back(s.text);
    for (const Segment& s : *of_tame)
      if (s.is_markup) tame_markup.push_back(s.text);
    EXPECT_EQ(evil_markup, tame_markup) << format.name;
  }
}

// What is left of a call that was cut is text like any other, also where it spells markers.
TEST(ChatEncoder, ArgumentsThatAreNoJsonStandAsTheyAre) {
  Conversation chat = load_chat_cases("cases.json").conversations[7];
  const auto prompt_with = [&](ChatFormat format, const std::string& arguments) {
    for (Message& message : chat.messages)
      for (ToolCall& call : message.tool_calls) call.arguments = arguments;
    return render(format, chat);
  };
  for (const ChatFormatTraits& format : chat_formats()) {
    if (!format.takes_tools || format.format == ChatFormat::kV32) continue;
    const std::string cut = "{\"city\": \"Os<｜tool▁call▁end｜><|tool_call_end|></think>";
    const auto whole = prompt_with(format.format, "{}"), broken = prompt_with(format.format, cut);
    ASSERT_TRUE(whole && broken) << format.name;
    ASSERT_EQ(whole->size(), broken->size()) << format.name;
    int num_different = 0;
    for (size_t i = 0; i < whole->size(); ++i) {
      const Segment &plain = (*whole)[i], &odd = (*broken)[i];
      EXPECT_EQ(plain.is_markup, odd.is_markup);
      if (plain.text == odd.text) continue;
      ++num_different;
      EXPECT_FALSE(odd.is_markup);
      EXPECT_NE(odd.text.find(cut), std::string::npos) << odd.text;
    }
    EXPECT_GT(num_different, 0) << format.name;
  }
}

Message calls_message(const std::vector<std::string>& arguments) {
  Message message{.role = "assistant", .tool_calls = {}};
  for (const std::string& one : arguments) message.tool_calls.push_back({"", "f", one});
  return message;
}

// V3.2 writes each argument apart and results in a group, so what has no place there is named.
TEST(ChatEncoder, V32RefusesMoreOrFewerResultsThanCalls) {
  Conversation chat;
  const Message result{.role = "tool", .content = "1"};
  chat.messages = {{.role = "user", .content = "?"}, calls_message({"{}"}), result, result};
  const auto prompt = render(ChatFormat::kV32, chat);
  ASSERT_FALSE(prompt);
  EXPECT_TRUE(prompt.error().message.starts_with(
      "messages[3]: is one result of a tool too many, messages[1] has 1"));
  chat.messages = {{.role = "user", .content = "?"}, calls_message({"{}", "{}"}), result};
  const auto fewer = render(ChatFormat::kV32, chat);
  ASSERT_FALSE(fewer);
  EXPECT_TRUE(
      fewer.error().message.starts_with("messages[1].tool_calls[1]: the call has no result"));
}

// A call whose arguments were cut has no result, and the conversation goes on.
TEST(ChatEncoder, V32WritesArgumentsThatAreNoObjectAsTheyStand) {
  for (const std::string arguments : {"{\"a\": ", "[1]", "", "{\"a\": 1, \"a\": 2}"}) {
    Conversation chat;
    chat.messages = {{.role = "user", .content = "?"},
                     calls_message({"{}", arguments}),
                     {.role = "tool", .content = "1"}};
    const auto prompt = render(ChatFormat::kV32, chat);
    ASSERT_TRUE(prompt) << prompt.error().message;
    const std::string shown = to_text(*prompt);
    EXPECT_NE(shown.find("\">\n" + arguments + "\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
              std::string::npos)
        << shown;
    EXPECT_TRUE(shown.ends_with("<result>1</result>\n</function_results>\n\n</think>")) << shown;
  }
}

// The encoder raises; an answer whose client does not send back what it thought has thought nothing.
TEST(ChatEncoder, V32ClosesTheReasoningOfAnAnswerThatHasNone) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "?"}, {.role = "assistant", .content = "!"}};
  chat.thinking = true;
  EXPECT_EQ(
      to_text(*render(ChatFormat::kV32, chat)),
      "<｜begin▁of▁sentence｜><｜User｜>?<｜Assistant｜><think></think>!<｜end▁of▁sentence｜>");
}

TEST(ChatEncoder, PlainNeighboursAreOneSegment) {
  for (const Conversation& chat : load_chat_cases("own_cases.json").conversations) {
    for (const ChatFormatTraits& format : chat_formats()) {
      const auto prompt = render(format.format, chat);
      if (!prompt) continue;
      for (size_t i = 0; i < prompt->size(); ++i) {
        EXPECT_FALSE((*prompt)[i].text.empty());
        EXPECT_TRUE(i == 0 || (*prompt)[i].is_markup || (*prompt)[i - 1].is_markup);
      }
    }
  }
}

// Requests that break a rule.

struct BadConversation {
  const char* name;
  const char* request;
  const char* message;  // part of the error
};

class BadConversations : public testing::TestWithParam<BadConversation> {};

TEST_P(BadConversations, AreRefusedByNameAndIndex) {
  const auto request = json::parse(GetParam().request);
  ASSERT_TRUE(request) << request.error().message;
  const Conversation chat = conversation_from_json(*request);
  for (const ChatFormatTraits& format : chat_formats()) {
    const auto prompt = render(format.format, chat);
    ASSERT_FALSE(prompt) << format.name;
    EXPECT_EQ(prompt.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(prompt.error().message.find(GetParam().message), std::string::npos)
        << prompt.error().message;
  }
}

constexpr BadConversation kBad[] = {
    {"unknown_role", R"({"messages": [{"role": "robot", "content": "x"}]})",
     "messages[0]: role is \"robot\""},
    {"empty_role", R"({"messages": [{"role": "", "content": "x"}]})", "messages[0]: role is \"\""},
    {"no_content", R"({"messages": [{"role": "user", "content": "a"}, {"role": "user"}]})",
     "messages[1]: content is missing"},
    {"empty_assistant", R"({"messages": [{"role": "assistant"}]})", "and so are tool_calls"},
    {"calls_of_user",
     R"({"messages": [{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]})",
     "tool_calls belong to the assistant"},
    {"nameless_call",
     R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "", "arguments": "{}"}}]}]})",
     "messages[0].tool_calls[0]: the function has no name"},
    {"result_without_call",
     R"({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "x"}]})",
     "messages[1]: role is \"tool\" but"},
    {"result_after_answer",
     R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "user", "content": "a"}, {"role": "tool", "content": "x", "tool_call_id": "i"}]})",
     "messages[2]: role is \"tool\" but"},
    {"tools_no_array", R"({"messages": [], "tools": {"a": 1}})", "tools: must be an array"},
    {"tool_no_object", R"({"messages": [], "tools": [3]})", "tools[0]: must be an object"},
    {"tool_type", R"({"messages": [], "tools": [{"type": "browser"}]})",
     "tools[0].type: is \"browser\""},
    {"tool_name", R"({"messages": [], "tools": [{"type": "function", "function": {"name": 3}}]})",
     "tools[0].function.name: must be a string"},
    {"tool_description", R"({"messages": [], "tools": [{"name": "f", "description": 3}]})",
     "tools[0].description: must be a string"},
    {"tool_parameters", R"({"messages": [], "tools": [{"name": "f", "parameters": []}]})",
     "tools[0].parameters: must be a JSON schema"},
};

INSTANTIATE_TEST_SUITE_P(Rules, BadConversations, testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ChatEncoder, FormatsWithoutToolsSaySo) {
  for (const Conversation& chat : load_chat_cases("cases.json").conversations) {
    const bool has_tools = !chat.tools->empty();
    EXPECT_EQ(render(ChatFormat::kV2, chat).has_value(), !has_tools);
    EXPECT_EQ(render(ChatFormat::kMoonlight, chat).has_value(), !has_tools);
  }
}

TEST(ChatEncoder, IsLinearInTheNumberOfMessages) {
  Conversation chat;
  for (int i = 0; i < 16384; ++i) {
    chat.messages.push_back({.role = "system", .content = "s"});
    chat.messages.push_back({.role = "user", .content = "</think>"});
    chat.messages.push_back({.role = "assistant", .content = "a</think>b"});
  }
  for (const ChatFormatTraits& format : chat_formats()) {
    const auto prompt = render(format.format, chat);
    ASSERT_TRUE(prompt);
    EXPECT_GT(to_text(*prompt).size(), chat.messages.size());
  }
}

}  // namespace
}  // namespace fathom::text
