// Which format a checkpoint needs. The published templates are read from ../shared; they are skipped,
// visibly, where that is missing.

#include "text/chat_format.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/shared_files.h"
#include "tests/source_tree.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

TEST(ChatFormats, HaveNamesThatReadBack) {
  std::set<std::string_view> names;
  for (const ChatFormatTraits& format : chat_formats()) {
    EXPECT_EQ(chat_format_from_name(format.name), format.format);
    EXPECT_EQ(traits(format.format).name, format.name);
    EXPECT_TRUE(names.insert(format.name).second);
    EXPECT_NE(chat_format_names().find(format.name), std::string::npos);
  }
  EXPECT_EQ(chat_format_from_name("v9"), std::nullopt);
  EXPECT_EQ(chat_format_from_name(""), std::nullopt);
}

std::string read_or_empty(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ChatFormats, ThePublishedTemplatesAreRecognised) {
  const std::string folder = "reference-data/chat-templates/";
  const std::pair<const char*, ChatFormat> kTemplates[] = {
      {"deepseek-v3.jinja", ChatFormat::kV3},
      {"deepseek-v3-tools.jinja", ChatFormat::kV3Tools},
      {"deepseek-r1.jinja", ChatFormat::kR1},
      {"deepseek-r1-tools.jinja", ChatFormat::kR1Tools},
      {"deepseek-v31.jinja", ChatFormat::kV31}};
  for (const auto& [file, format] : kTemplates) {
    if (!is_shared(folder + file)) GTEST_SKIP() << not_shared(folder + file);
    const std::string source = read_or_empty(shared_path(folder + file));
    const auto detected =
        detect_chat_format({.model_type = "deepseek_v3", .chat_template = source});
    ASSERT_TRUE(detected) << detected.error().message;
    EXPECT_EQ(chat_format_name(*detected), chat_format_name(format));
  }
}

TEST(ChatFormats, TheDemoCheckpointIsV31) {
  const auto config = json::parse(read_or_empty(source_path("models/demo/tokenizer_config.json")));
  ASSERT_TRUE(config);
  const auto detected =
      detect_chat_format({.chat_template = (*config)["chat_template"].get<std::string>()});
  ASSERT_TRUE(detected);
  EXPECT_EQ(*detected, ChatFormat::kV31);
}

TEST(ChatFormats, TellTaleFeaturesDecide) {
  const auto detect = [](const char* source) {
    const auto detected = detect_chat_format({.chat_template = source});
    return detected ? std::string(chat_format_name(*detected)) : "none";
  };
  EXPECT_EQ(detect("{{ 'User: ' + message['content'] }}{{ 'Assistant:' }}"), "v2");
  EXPECT_EQ(detect("'<｜User｜>' is_last_user '<｜tool▁calls▁begin｜>'"), "v3-0324");
  EXPECT_EQ(detect("'<｜User｜>' is_last_user '<｜tool▁calls▁begin｜>' split('</think>')"),
            "r1-0528");
  EXPECT_EQ(detect("<|im_middle|> tool_declare"), "kimi-k2");
  EXPECT_EQ(detect("<|im_middle|> provided by Moonshot-AI."), "moonlight");
  // Other people's templates and newer models' are not guessed.
  EXPECT_EQ(detect("<|im_middle|>"), "none");
  EXPECT_EQ(detect("<|im_start|>user"), "none");
  EXPECT_EQ(detect("{{ '<｜User｜>' + message['content'] }}{{ '<｜Assistant｜>' }}"), "none");
  EXPECT_EQ(detect("'<｜User｜>' '<｜tool▁calls▁begin｜>' split('</think>')"), "none");
}

TEST(ChatFormats, WithoutATemplateOnlyUnambiguousModelTypesDecide) {
  EXPECT_EQ(*detect_chat_format({.model_type = "kimi_k2"}), ChatFormat::kKimiK2);
  EXPECT_EQ(*detect_chat_format({.model_type = "deepseek_v2"}), ChatFormat::kV2);
  EXPECT_EQ(*detect_chat_format({.model_type = "deepseek_v32"}), ChatFormat::kV32);
  for (const char* model_type : {"deepseek_v3", ""}) {
    const auto detected = detect_chat_format({.model_type = model_type});
    ASSERT_FALSE(detected);
    for (const ChatFormatTraits& format : chat_formats()) {
      EXPECT_NE(detected.error().message.find(format.name), std::string::npos);
    }
  }
}

TEST(ChatFormats, ConversationsAboutToolsUseTheToolForms) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = "x"}};
  EXPECT_EQ(format_for(ChatFormat::kV3, chat), ChatFormat::kV3);
  EXPECT_EQ(format_for(ChatFormat::kR1_0528, chat), ChatFormat::kR1_0528);
  chat.tools = json::Value();
  EXPECT_EQ(format_for(ChatFormat::kR1, chat), ChatFormat::kR1);
  Conversation with_tools = chat;
  with_tools.tools = *json::parse(R"([{"name": "f"}])");
  Conversation with_call = chat;
  with_call.messages.push_back({.role = "assistant", .tool_calls = {{"i", "f", "{}"}}});
  for (const Conversation& conversation : {with_tools, with_call}) {
    EXPECT_EQ(format_for(ChatFormat::kV3, conversation), ChatFormat::kV3Tools);
    EXPECT_EQ(format_for(ChatFormat::kV3_0324, conversation), ChatFormat::kV3Tools);
    EXPECT_EQ(format_for(ChatFormat::kR1, conversation), ChatFormat::kR1Tools);
    EXPECT_EQ(format_for(ChatFormat::kR1_0528, conversation), ChatFormat::kR1Tools);
    EXPECT_EQ(format_for(ChatFormat::kV31, conversation), ChatFormat::kV31);
    EXPECT_EQ(format_for(ChatFormat::kKimiK2, conversation), ChatFormat::kKimiK2);
  }
}

TEST(ChatFormats, NameTheStringsThatTheOutputParserReads) {
  const auto markers = output_markers(ChatFormat::kKimiK2);
  const std::set<std::string_view> found(markers.begin(), markers.end());
  const std::set<std::string_view> wanted = {"<think>",
                                             "</think>",
                                             "<|tool_calls_section_begin|>",
                                             "<|tool_calls_section_end|>",
                                             "<|tool_call_begin|>",
                                             "<|tool_call_argument_begin|>",
                                             "<|tool_call_end|>"};
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(output_markers(ChatFormat::kV2).size(), 2u);
}

TEST(ToolSchema, WritesJsonAsPythonDoes) {
  const auto value =
      json::parse(R"({"a":[1,2.5,true,null],"é":{"b":"q\"\n\u0001"},"c":{},"d":[]})");
  ASSERT_TRUE(value);
  EXPECT_EQ(spaced_json(*value),
            R"({"a": [1, 2.5, true, null], "é": {"b": "q\"\n\u0001"}, "c": {}, "d": []})");
  EXPECT_EQ(compact_json(*value),
            R"({"a":[1,2.5,true,null],"é":{"b":"q\"\n\u0001"},"c":{},"d":[]})");
}

// The fewest digits, and an exponent where Python's repr() has one.
TEST(ToolSchema, WritesNumbersAsPythonDoes) {
  const std::string_view floats[] = {"0.0",
                                     "-0.0",
                                     "1.0",
                                     "0.0001",
                                     "1e-05",
                                     "1.5e-07",
                                     "0.30000000000000004",
                                     "1e+16",
                                     "1e+100",
                                     "5e-324",
                                     "-100.0",
                                     "1000000000000000.0",
                                     "9007199254740992.0",
                                     "-1039514241563211.8",
                                     "-3.1316709716158577e+78",
                                     "7.113578243725634e-249",
                                     "-2.003485544858745e+16",
                                     "1.7976931348623157e+308"};
  for (const std::string_view text : floats) {
    const auto value = json::parse(text);
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(spaced_json(*value), text);
  }
}

}  // namespace
}  // namespace fathom::text
