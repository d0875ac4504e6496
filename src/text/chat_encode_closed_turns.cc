// The templates whose user turn ends with <｜Assistant｜>: V3-0324 and R1-0528, and the tool-calling forms of
// V3 and R1. The tool-calling templates are indented source, and some of the indentation and newlines end
// up in the prompt; the models are served with exactly that text everywhere, so it is kept.

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/chat_markup.h"
#include "text/prompt_builder.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

// Where the forms differ. Indents are spaces that the template leaves before what it prints.
struct ClosedTurnStyle {
  bool is_r1 = false;              // answers lose their reasoning
  bool has_tool_list = false;      // describes the tools after the system text
  bool announces_results = false;  // a sentence before the first result
  std::string_view before_bos = "", after_bos = "", after_end = "";
  int first_call_indent = 0, next_call_indent = 0, calls_end_indent = 0;
  int turn_indent = 0;  // answers, results, and results' end before calls
  int end_indent = 0;   // what closes the prompt
};

ClosedTurnStyle style_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::kR1_0528:
      return {.is_r1 = true};
    case ChatFormat::kV3Tools:
      return {
          .has_tool_list = true, .announces_results = true, .before_bos = "\n", .after_end = "\n"};
    case ChatFormat::kR1Tools:
      return {.is_r1 = true,
              .has_tool_list = true,
              .before_bos = "\n\n",
              .after_bos = "\n",
              .after_end = "\n",
              .first_call_indent = 20,
              .next_call_indent = 16,
              .calls_end_indent = 8,
              .turn_indent = 12,
              .end_indent = 4};
    default:
      return {};
  }
}

class ClosedTurnEncoder {
 public:
  explicit ClosedTurnEncoder(ClosedTurnStyle style) : style_(style) {}

  std::vector<Segment> encode(const Conversation& conversation) && {
    prompt_.text(style_.before_bos).markup(markup::kBos).text(style_.after_bos);
    prompt_.text(joined_system(conversation));
    if (style_.has_tool_list && !conversation.tools->empty()) append_tools(*conversation.tools);
    for (const Message& message : conversation.messages) append(message);
    if (in_results_) {
      indent(style_.end_indent).markup(markup::kOutputsEnd).text(style_.after_end);
    } else if (conversation.add_generation_prompt && !is_users_turn_closed_) {
      indent(style_.end_indent).markup(markup::kAssistant).text(style_.after_end);
    }
    return std::move(prompt_).take();
  }

 private:
  PromptBuilder& indent(int spaces) {
    return prompt_.text(std::string(static_cast<size_t>(spaces), ' '));
  }

  void append_tools(const json::Value& tools) {
    prompt_
        .text(
            "\n\nYou are a helpful assistant with tool calling capabilities. When a tool call is "
            "needed, you MUST use the following format to issue the call:\n")
        .markup(markup::kCallsBegin)
        .markup(markup::kCallBegin)
        .text("function")
        .markup(markup::kSep)
        .text("FUNCTION_NAME\n```json\n{\"param1\": \"value1\", \"param2\": \"value2\"}\n```")
        .markup(markup::kCallEnd)
        .markup(markup::kCallsEnd)
        .text(
            "\n\nMake sure the JSON is valid.## Tools\n\n### Function\n\nYou have the following "
            "functions available:\n\n");
    for (const json::Value& tool : tools) {
      if (style_.is_r1) {
        prompt_.text("- `").text(tool_name(tool)).text("`:");
      }
      prompt_.text("\n```json\n").text(spaced_json(tool)).text("\n```\n");
    }
  }

  void append(const Message& message) {
    if (is_system(message)) return;
    if (message.role == "user") {
      in_results_ = false;
      is_users_turn_closed_ = true;
      prompt_.markup(markup::kUser).text(content_of(message)).markup(markup::kAssistant);
      return;
    }
    is_users_turn_closed_ = false;
    if (message.role == "tool") {
      append_result(message);
    } else if (!message.tool_calls.empty()) {
      append_calls(message);
    } else {
      append_answer(message);
    }
  }

  std::string_view answer_of(const Message& message) const {
    return style_.is_r1 ? after_last_think(content_of(message)) : content_of(message);
  }

  void append_answer(const Message& message) {
    indent(style_.turn_indent);
    if (in_results_) prompt_.markup(markup::kOutputsEnd);
    in_results_ = false;
    prompt_.text(answer_of(message)).markup(markup::kEos);
  }

  void append_calls(const Message& message) {
    if (in_results_) indent(style_.turn_indent).markup(markup::kOutputsEnd);
    in_results_ = false;
    is_first_result_ = true;
    bool is_first = true;
    for (const ToolCall& call : message.tool_calls) {
      if (is_first) {
        indent(style_.first_call_indent).text(answer_of(message)).markup(markup::kCallsBegin);
      } else {
        indent(style_.next_call_indent).text("\n");
      }
      is_first = false;
      prompt_.markup(markup::kCallBegin).text("function").markup(markup::kSep).text(call.name);
      prompt_.text("\n```json\n").text(call.arguments).text("\n```").markup(markup::kCallEnd);
    }
    indent(style_.calls_end_indent).markup(markup::kCallsEnd).markup(markup::kEos);
  }

  void append_result(const Message& message) {
    indent(style_.turn_indent);
    if (is_first_result_) {
      if (style_.announces_results) {
        prompt_.text(
            "Use the results below to formulate an answer to the user question unless "
            "additional information is needed.");
      }
      prompt_.markup(markup::kOutputsBegin);
    } else {
      prompt_.text("\n");
    }
    is_first_result_ = false;
    in_results_ = true;
    prompt_.markup(markup::kOutputBegin).text(content_of(message)).markup(markup::kOutputEnd);
  }

  ClosedTurnStyle style_;
  PromptBuilder prompt_;
  bool in_results_ = false;
  bool is_first_result_ = true;
  bool is_users_turn_closed_ = false;
};

}  // namespace

std::vector<Segment> encode_closed_turns(ChatFormat format, const Conversation& conversation) {
  return ClosedTurnEncoder(style_of(format)).encode(conversation);
}

}  // namespace fathom::text
