#include "text/chat_encoder.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/chat_markup.h"

namespace fathom::text {
namespace {

Status check_tools_have_a_place(ChatFormat format, const Conversation& conversation) {
  if (traits(format).takes_tools) return {};
  const std::string name(chat_format_name(format));
  if (!conversation.tools->empty()) {
    return invalid_argument("tools: the chat format " + name + " has no place for tools");
  }
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (message.role == "tool" || !message.tool_calls.empty()) {
      return invalid_argument("messages[" + std::to_string(i) + "]: the chat format " + name +
                              " has no place for tool calls and their results");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Segment>> render(ChatFormat format, const Conversation& conversation) {
  if (Status valid = validate(conversation); !valid) return valid.error();
  if (Status place = check_tools_have_a_place(format, conversation); !place) return place.error();
  switch (format) {
    case ChatFormat::kV2:
      return encode_v2(conversation);
    case ChatFormat::kV3:
      return encode_v3(conversation);
    case ChatFormat::kR1:
      return encode_r1(conversation);
    case ChatFormat::kV31:
      return encode_v31(conversation);
    case ChatFormat::kV32:
      return encode_v32(conversation);
    case ChatFormat::kV3_0324:
    case ChatFormat::kV3Tools:
    case ChatFormat::kR1_0528:
    case ChatFormat::kR1Tools:
      return encode_closed_turns(format, conversation);
    case ChatFormat::kKimiK2:
    case ChatFormat::kMoonlight:
      return encode_kimi(format, conversation);
  }
  FATHOM_CHECK(false, "chat format " << static_cast<int>(format));
}

std::vector<int32_t> encode(const std::vector<Segment>& prompt, const Tokenizer& tokenizer) {
  std::map<std::string_view, std::optional<int32_t>> known;
  std::vector<int32_t> ids;
  std::string plain;  // since the last added token: one piece for the pre-tokenizer
  const auto flush = [&] {
    const std::vector<int32_t> more = tokenizer.encode(plain, {.parse_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
    plain.clear();
  };
  for (const Segment& segment : prompt) {
    std::optional<int32_t> id;
    if (segment.is_markup) {
      const auto found = known.find(segment.text);
      id = found != known.end() ? found->second : tokenizer.added_token_id(segment.text);
      known.emplace(segment.text, id);
    }
    if (id) {
      flush();
      ids.push_back(*id);
    } else {
      plain += segment.text;
    }
  }
  flush();
  return ids;
}

std::vector<std::string> unknown_markup(ChatFormat format, const Tokenizer& tokenizer) {
  Conversation chat;
  chat.messages = {{.role = "user", .content = ""}, {.role = "assistant", .content = ""}};
  const Result<std::vector<Segment>> prompt = render(format, chat);
  FATHOM_CHECK(prompt.has_value(), prompt.error().message);
  std::vector<std::string> unknown;
  for (const Segment& segment : *prompt) {
    // Checkpoints before R1 write <think> as plain text.
    const bool is_think = segment.text == markup::kThinkBegin || segment.text == markup::kThinkEnd;
    const bool is_new = std::ranges::find(unknown, segment.text) == unknown.end();
    if (!segment.is_markup || is_think || !is_new) continue;
    if (!tokenizer.added_token_id(segment.text)) unknown.push_back(segment.text);
  }
  return unknown;
}

std::string to_text(const std::vector<Segment>& prompt) {
  std::string text;
  for (const Segment& segment : prompt) text += segment.text;
  return text;
}

bool opens_reasoning(const std::vector<Segment>& prompt) {
  const auto last = std::find_if(prompt.rbegin(), prompt.rend(),
                                 [](const Segment& segment) { return segment.is_markup; });
  return last != prompt.rend() && last->text == markup::kThinkBegin;
}

bool is_system(const Message& message) {
  return message.role == "system" || message.role == "developer";
}

std::string_view content_of(const Message& message) {
  return message.content ? std::string_view(*message.content) : std::string_view();
}

std::string joined_system(const Conversation& conversation) {
  std::string joined;
  bool is_first = true;
  for (const Message& message : conversation.messages) {
    if (!is_system(message)) continue;
    if (!is_first) joined += "\n\n";
    is_first = false;
    joined += content_of(message);
  }
  return joined;
}

std::string_view after_last_think(std::string_view content) {
  const size_t end = content.rfind(markup::kThinkEnd);
  return end == std::string_view::npos ? content : content.substr(end + markup::kThinkEnd.size());
}

}  // namespace fathom::text
