// DeepSeek-V3.1: </think> after <｜Assistant｜> turns reasoning off, <think> turns it on; tools are
// described after the system text, and calls carry bare JSON.

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/chat_markup.h"
#include "text/prompt_builder.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

void append_tools(const json::Value& tools, PromptBuilder& prompt) {
  prompt.text("\n\n## Tools\nYou have access to the following tools:\n");
  for (const json::Value& tool : tools) {
    prompt.text("\n### ").text(tool_name(tool));
    prompt.text("\nDescription: ").text(tool_description(tool));
    prompt.text("\n\nParameters: ").text(spaced_json(tool_parameters(tool))).text("\n");
  }
  prompt.text("\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n")
      .markup(markup::kCallsBegin)
      .markup(markup::kCallBegin)
      .text("tool_call_name")
      .markup(markup::kSep)
      .text("tool_call_arguments")
      .markup(markup::kCallEnd)
      .text("{{additional_tool_calls}}")
      .markup(markup::kCallsEnd)
      .text(
          "\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n"
          "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters "
          "Schema\n- For multiple tool calls, chain them directly without separators or spaces\n");
}

// What follows the first </think>: this template splits once, from the left.
std::string_view after_first_think(std::string_view content) {
  const size_t end = content.find(markup::kThinkEnd);
  return end == std::string_view::npos ? content : content.substr(end + markup::kThinkEnd.size());
}

void append_assistant(const Message& message, PromptBuilder& prompt) {
  prompt.text(after_first_think(content_of(message)));
  if (!message.tool_calls.empty()) {
    prompt.markup(markup::kCallsBegin);
    for (const ToolCall& call : message.tool_calls) {
      prompt.markup(markup::kCallBegin).text(call.name).markup(markup::kSep).text(call.arguments);
      prompt.markup(markup::kCallEnd);
    }
    prompt.markup(markup::kCallsEnd);
  }
  prompt.markup(markup::kEos);
}

}  // namespace

std::vector<Segment> encode_v31(const Conversation& conversation) {
  PromptBuilder prompt;
  prompt.markup(markup::kBos).text(joined_system(conversation));
  if (!conversation.tools->empty()) append_tools(*conversation.tools, prompt);
  bool is_after_user = false;
  for (const Message& message : conversation.messages) {
    if (is_system(message)) continue;
    if (message.role == "user") {
      prompt.markup(markup::kUser).text(content_of(message));
    } else if (message.role == "tool") {
      prompt.markup(markup::kOutputBegin).text(content_of(message)).markup(markup::kOutputEnd);
    } else {
      if (is_after_user) prompt.markup(markup::kAssistant).markup(markup::kThinkEnd);
      append_assistant(message, prompt);
    }
    is_after_user = message.role == "user";
  }
  if (conversation.add_generation_prompt && is_after_user) {
    prompt.markup(markup::kAssistant);
    prompt.markup(conversation.thinking ? markup::kThinkBegin : markup::kThinkEnd);
  }
  return std::move(prompt).take();
}

}  // namespace fathom::text
