#include "text/chat_format.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "text/chat_markup.h"
#include "text/tool_call_form.h"

namespace fathom::text {
namespace {

constexpr std::array<ChatFormatTraits, 11> kFormats = {{
    {ChatFormat::kV2, "v2", "DeepSeek-V2, V2-Lite, Coder-V2", false},
    {ChatFormat::kV3, "v3", "DeepSeek-V3, V2.5", true},
    {ChatFormat::kV3_0324, "v3-0324", "DeepSeek-V3-0324", true},
    {ChatFormat::kV3Tools, "v3-tools", "tool-calling template of V3", true},
    {ChatFormat::kR1, "r1", "DeepSeek-R1", true},
    {ChatFormat::kR1_0528, "r1-0528", "DeepSeek-R1-0528", true},
    {ChatFormat::kR1Tools, "r1-tools", "tool-calling template of R1", true},
    {ChatFormat::kV31, "v3.1", "DeepSeek-V3.1", true},
    {ChatFormat::kV32, "v3.2", "DeepSeek-V3.2", true},
    {ChatFormat::kKimiK2, "kimi-k2", "Kimi-K2", true, true},
    {ChatFormat::kMoonlight, "moonlight", "Moonlight", false},
}};

std::optional<ChatFormat> recognise_moonshot(std::string_view source) {
  if (source.find("tool_declare") != source.npos) return ChatFormat::kKimiK2;
  if (source.find("provided by Moonshot-AI") != source.npos) return ChatFormat::kMoonlight;
  return std::nullopt;
}

std::optional<ChatFormat> recognise_deepseek(std::string_view source) {
  const auto has = [&](std::string_view part) { return source.find(part) != source.npos; };
  if (!has(markup::kCallsBegin)) return std::nullopt;  // V2-Chat-0628 and strangers
  const bool drops_reasoning = has(markup::kThinkEnd);
  // Published with tool_call_name and a switch named thinking.
  if (drops_reasoning && has("thinking is defined")) return ChatFormat::kV31;
  if (has("FUNCTION_NAME")) return drops_reasoning ? ChatFormat::kR1Tools : ChatFormat::kV3Tools;
  if (has("is_last_user")) return drops_reasoning ? ChatFormat::kR1_0528 : ChatFormat::kV3_0324;
  if (!drops_reasoning) return ChatFormat::kV3;
  return has(markup::kThinkBegin) ? std::optional(ChatFormat::kR1) : std::nullopt;
}

std::optional<ChatFormat> recognise(std::string_view source) {
  if (source.find(markup::kImMiddle) != source.npos) return recognise_moonshot(source);
  if (source.find(markup::kUser) != source.npos) return recognise_deepseek(source);
  const bool has_words =
      source.find("'User: '") != source.npos && source.find("'Assistant:'") != source.npos;
  return has_words ? std::optional(ChatFormat::kV2) : std::nullopt;
}

}  // namespace

std::span<const ChatFormatTraits> chat_formats() { return kFormats; }

const ChatFormatTraits& traits(ChatFormat format) {
  const ChatFormatTraits& found = kFormats.at(static_cast<size_t>(format));
  FATHOM_DCHECK(found.format == format, "kFormats is out of the order of the enum");
  return found;
}

std::string_view chat_format_name(ChatFormat format) { return traits(format).name; }

std::optional<ChatFormat> chat_format_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kFormats, name, &ChatFormatTraits::name);
  return found == kFormats.end() ? std::nullopt : std::optional(found->format);
}

std::string chat_format_names() {
  std::string names;
  for (const ChatFormatTraits& format : kFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

Result<ChatFormat> detect_chat_format(const CheckpointChatHints& hints) {
  if (!hints.chat_template.empty()) {
    if (const auto format = recognise(hints.chat_template)) return *format;
    return invalid_argument(
        "chat template: not one of the published templates that are built in; "
        "--chat-format takes " +
        chat_format_names());
  }
  if (hints.model_type == "kimi_k2") return ChatFormat::kKimiK2;
  if (hints.model_type == "deepseek_v2") return ChatFormat::kV2;
  // V3.2 publishes no template; V3.2-Exp does, of V3.1's kind.
  if (hints.model_type == "deepseek_v32") return ChatFormat::kV32;
  return invalid_argument("chat template: the checkpoint has none, and model_type \"" +
                          hints.model_type.substr(0, 64) +
                          "\" does not tell the format; "
                          "--chat-format takes " +
                          chat_format_names());
}

bool speaks_of_tools(const Conversation& conversation) {
  const auto has_call_or_result = [](const Message& message) {
    return message.role == "tool" || !message.tool_calls.empty();
  };
  return !conversation.tools->empty() ||
         std::ranges::any_of(conversation.messages, has_call_or_result);
}

ChatFormat format_for(ChatFormat format, const Conversation& conversation) {
  if (!speaks_of_tools(conversation)) return format;
  switch (format) {
    case ChatFormat::kV3:
    case ChatFormat::kV3_0324:
      return ChatFormat::kV3Tools;
    case ChatFormat::kR1:
    case ChatFormat::kR1_0528:
      return ChatFormat::kR1Tools;
    default:
      return format;
  }
}

bool model_opens_reasoning(ChatFormat format) {
  return format == ChatFormat::kR1_0528 || format == ChatFormat::kR1Tools;
}

std::vector<std::string_view> output_markers(ChatFormat format) {
  std::vector<std::string_view> markers = {markup::kThinkBegin, markup::kThinkEnd};
  if (writes_dsml(format)) markers.push_back(markup::kDsml);
  if (const ToolCallForm* form = tool_call_form(format)) {
    markers.push_back(form->section_begin);
    markers.push_back(form->section_end);
    markers.push_back(form->call_begin);
    for (const CallStep& step : form->steps) {
      if (step.literal.size() > 1 && step.literal.front() == '<') markers.push_back(step.literal);
    }
  }
  return markers;
}

}  // namespace fathom::text
