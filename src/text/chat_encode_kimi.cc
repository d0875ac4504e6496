// Kimi-K2 and Moonlight: every turn is <|im_ROLE|>name<|im_middle|>…<|im_end|>. Kimi declares tools as
// compact JSON in a turn of their own and identifies each call; Moonlight has another default system text
// and no tools. Neither writes BOS.

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/chat_markup.h"
#include "text/prompt_builder.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

constexpr std::string_view kKimiSystem = "You are Kimi, an AI assistant created by Moonshot AI.";
constexpr std::string_view kMoonlightSystem =
    "You are a helpful assistant provided by Moonshot-AI.";

std::string_view opening_of(const Message& message) {
  if (message.role == "user") return markup::kImUser;
  return message.role == "assistant" ? markup::kImAssistant : markup::kImSystem;
}

// Models expect the ids that they write themselves; a call without one gets the id it would have had.
std::string id_of(const ToolCall& call, size_t call_idx) {
  return call.id.empty() ? "functions." + call.name + ":" + std::to_string(call_idx) : call.id;
}

void append_calls(const Message& message, PromptBuilder& prompt) {
  prompt.markup(markup::kKimiSectionBegin);
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    prompt.markup(markup::kKimiCallBegin).text(id_of(call, i));
    prompt.markup(markup::kKimiArgumentBegin).text(call.arguments).markup(markup::kKimiCallEnd);
  }
  prompt.markup(markup::kKimiSectionEnd);
}

// A result without tool_call_id answers the calls in their order.
std::string answered_id(const Message& result, const Message& calls, size_t result_idx) {
  if (!result.tool_call_id.empty() || result_idx >= calls.tool_calls.size()) {
    return result.tool_call_id;
  }
  return id_of(calls.tool_calls[result_idx], result_idx);
}

std::string_view label_of(ChatFormat format, const Message& message) {
  if (is_system(message) && message.name.empty()) return "system";
  const bool has_names = format == ChatFormat::kKimiK2;
  return has_names && !message.name.empty() ? message.name : message.role;
}

}  // namespace

std::vector<Segment> encode_kimi(ChatFormat format, const Conversation& conversation) {
  PromptBuilder prompt;
  if (!conversation.tools->empty()) {
    prompt.markup(markup::kImSystem).text("tool_declare").markup(markup::kImMiddle);
    prompt.text(compact_json(*conversation.tools)).markup(markup::kImEnd);
  }
  const auto& messages = conversation.messages;
  if (!messages.empty() && !is_system(messages.front())) {
    prompt.markup(markup::kImSystem).text("system").markup(markup::kImMiddle);
    prompt.text(format == ChatFormat::kKimiK2 ? kKimiSystem : kMoonlightSystem)
        .markup(markup::kImEnd);
  }
  const Message* calls = nullptr;
  size_t result_idx = 0;
  for (const Message& message : messages) {
    prompt.markup(opening_of(message)).text(label_of(format, message)).markup(markup::kImMiddle);
    if (message.role == "tool") {
      prompt.text("## Return of ").text(answered_id(message, *calls, result_idx++)).text("\n");
    }
    prompt.text(content_of(message));
    if (!message.tool_calls.empty()) {
      append_calls(message, prompt);
      calls = &message;
      result_idx = 0;
    }
    prompt.markup(markup::kImEnd);
  }
  if (conversation.add_generation_prompt) {
    prompt.markup(markup::kImAssistant).text("assistant").markup(markup::kImMiddle);
  }
  return std::move(prompt).take();
}

}  // namespace fathom::text
