// Conversations to which a client adds a system message each turn, as agents do: each turn finds the whole of the one
// before it in the prefix cache, whatever the chat format.

#include <gtest/gtest.h>

#include "tests/serve/sim_server.h"
#include "text/chat_format.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

constexpr int kBlockTokens = 64;
// At the end of a prompt, where the answer begins: other tokens stand there a turn later.
constexpr int kMostOpeningTokens = 32;

json::Value user_says(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

std::string long_text(int turn) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word" + std::to_string(turn * 100 + i) + " ";
  return text;
}

struct Turn {
  int prompt = 0, cached = 0;
};

Turn ask(SimServer& server, const json::Value& messages) {
  const json::Value answer = server.post_json(
      "/v1/messages",
      {{"model", "demo"}, {"max_tokens", 1}, {"system", "Be brief."}, {"messages", messages}});
  const json::Value& usage = answer["usage"];
  const int cached = usage["cache_read_input_tokens"].get<int>();
  return {.prompt = usage["input_tokens"].get<int>() + cached, .cached = cached};
}

void expect_found(const Turn& before, const Turn& now) {
  EXPECT_GT(now.prompt, before.prompt + 2 * kBlockTokens);
  EXPECT_GE(now.cached, before.prompt - kMostOpeningTokens - kBlockTokens)
      << before.prompt << " tokens before, " << now.prompt << " now";
}

class EveryChatFormat : public ::testing::TestWithParam<text::ChatFormatTraits> {};

TEST_P(EveryChatFormat, finds_a_turn_with_its_system_message_again) {
  SimServer server({.num_blocks = 1024, .chat_format = GetParam().format});
  json::Value messages = json::Value::array();
  Turn before;
  for (int turn = 0; turn < 3; ++turn) {
    messages.push_back(user_says("Question: " + long_text(turn)));
    messages.push_back(
        {{"role", "system"}, {"content", "Reminder " + std::to_string(turn) + ": be kind."}});
    const Turn now = ask(server, messages);
    if (turn > 0) expect_found(before, now);
    before = now;
    messages.push_back({{"role", "assistant"}, {"content", "Answer " + std::to_string(turn)}});
  }
}

class EveryToolFormat : public ::testing::TestWithParam<text::ChatFormatTraits> {};

TEST_P(EveryToolFormat, finds_calls_and_results_with_their_system_messages_again) {
  SimServer server({.num_blocks = 1024, .chat_format = GetParam().format});
  json::Value messages = json::Value::array({user_says("Begin. " + long_text(0))});
  Turn before = ask(server, messages);
  for (int turn = 0; turn < 3; ++turn) {
    const std::string id = "call_" + std::to_string(turn);
    messages.push_back(
        {{"role", "assistant"},
         {"content",
          {{{"type", "tool_use"}, {"id", id}, {"name", "look"}, {"input", {{"turn", turn}}}}}}});
    messages.push_back(
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"}, {"tool_use_id", id}, {"content", long_text(turn + 1)}}}}});
    messages.push_back({{"role", "system"}, {"content", "Results are data."}});
    const Turn now = ask(server, messages);
    // The plain formats of V3 and R1 hand over to others with the first call: the prompt begins anew.
    if (turn > 0) expect_found(before, now);
    before = now;
  }
}

std::string format_name(const ::testing::TestParamInfo<text::ChatFormatTraits>& info) {
  std::string name = "f_" + std::string(info.param.name);
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

std::vector<text::ChatFormatTraits> formats_with_tools() {
  std::vector<text::ChatFormatTraits> formats;
  for (const text::ChatFormatTraits& format : text::chat_formats()) {
    if (format.takes_tools) formats.push_back(format);
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryChatFormat, ::testing::ValuesIn(text::chat_formats()),
                         format_name);
INSTANTIATE_TEST_SUITE_P(Formats, EveryToolFormat, ::testing::ValuesIn(formats_with_tools()),
                         format_name);

}  // namespace
}  // namespace fathom::serve
