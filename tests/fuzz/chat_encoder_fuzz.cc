// Any bytes as a chat request: every format renders it or says why not; what it renders keeps user text out
// of the markup, and chat templates of any kind are recognised or refused.
//
// Input: byte 0 chooses the format, the rest is a JSON request, or else a template.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tests/text/chat_cases.h"
#include "text/chat_encoder.h"

namespace {

using namespace fathom::text;  // NOLINT(google-build-using-namespace): the subject of the file

bool has_readable_shape(const fathom::json::Value& request) {
  if (!request.is_object() || !request.contains("messages") || !request["messages"].is_array())
    return false;
  for (const auto& message : request["messages"]) {
    if (!message.is_object()) return false;
    if (!message.contains("tool_calls")) continue;
    if (!message["tool_calls"].is_array()) return false;
    for (const auto& call : message["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
        return false;
    }
  }
  const auto is_flag = [&](const char* key) {
    return !request.contains(key) || request[key].is_boolean();
  };
  return is_flag("add_generation_prompt") && is_flag("thinking");
}

// Markup comes from the template alone: as many special strings as when every text is empty.
size_t num_markup(const std::vector<Segment>& prompt) {
  size_t count = 0;
  for (const Segment& segment : prompt) count += segment.is_markup;
  return count;
}

void check_prompt(ChatFormat format, const Conversation& chat, const std::vector<Segment>& prompt) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    FATHOM_CHECK(!prompt[i].text.empty(), "empty segment " << i);
    FATHOM_CHECK(i == 0 || prompt[i].is_markup || prompt[i - 1].is_markup,
                 "plain neighbours at " << i);
  }
  Conversation tame = chat;
  for (Message& message : tame.messages) {
    if (message.content) message.content = "x";
    message.name = "";
  }
  const auto tame_prompt = render(format, tame);
  FATHOM_CHECK(tame_prompt.has_value(), tame_prompt.error().message);
  FATHOM_CHECK(num_markup(prompt) == num_markup(*tame_prompt), "text changed the markup");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const auto formats = chat_formats();
  const ChatFormat format = formats[data[0] % formats.size()].format;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto request = fathom::json::parse(text);
  if (!request) {
    const auto detected = detect_chat_format({.chat_template = std::string(text)});
    FATHOM_CHECK(detected || !detected.error().message.empty(), "an error without a message");
    return 0;
  }
  if (!has_readable_shape(*request)) return 0;
  const Conversation chat = tests::conversation_from_json(*request);
  const auto prompt = render(format_for(format, chat), chat);
  if (prompt) {
    check_prompt(format_for(format, chat), chat, *prompt);
  } else {
    FATHOM_CHECK(!prompt.error().message.empty(), "an error without a message");
  }
  return 0;
}
