// DeepSeek-V3.2, which publishes no template but an encoder: calls and their parameters are tags of DSML, the user's
// turn and the last result of a turn open the answer, and reasoning stays in the prompt until the user speaks again.
// What the encoder would raise at is refused here.

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "text/chat_encoders.h"
#include "text/chat_markup.h"
#include "text/prompt_builder.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

// What the model was trained on, to the letter.
constexpr std::string_view kToolsPreamble = R"(## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
)";

std::string place_of(size_t message) { return "messages[" + std::to_string(message) + "]"; }

class DsmlEncoder {
 public:
  explicit DsmlEncoder(const Conversation& conversation) : conversation_(conversation) {
    const std::vector<Message>& messages = conversation.messages;
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == "user") last_user_ = static_cast<ptrdiff_t>(i);
    }
  }

  Result<std::vector<Segment>> encode() && {
    prompt_.markup(markup::kBos);
    const std::vector<Message>& messages = conversation_.messages;
    bool lists_tools = !conversation_.tools->empty();
    // Where no system message stands in front to take them, an empty one would. Further back they would move with every
    // such message, and cut a running chain of thought in two.
    if (lists_tools && (messages.empty() || !is_system(messages.front()))) {
      append_tools();
      lists_tools = false;
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (is_system(message)) {
        prompt_.text(content_of(message));
        if (std::exchange(lists_tools, false)) append_tools();
      } else if (message.role == "user") {
        append_user(i);
      } else if (message.role == "tool") {
        if (Status result = append_result(i); !result) return result.error();
      } else {
        append_answer(i);
      }
    }
    return std::move(prompt_).take();
  }

 private:
  PromptBuilder& tag(std::string_view begin, std::string_view rest) {
    return prompt_.text(begin).markup(markup::kDsml).text(rest);
  }

  void append_preamble() {
    std::string_view rest = kToolsPreamble;
    while (!rest.empty()) {
      size_t at = rest.size();
      std::string_view first;
      for (const std::string_view special :
           {markup::kDsml, markup::kThinkBegin, markup::kThinkEnd}) {
        if (const size_t found = rest.find(special); found < at) {
          at = found;
          first = special;
        }
      }
      prompt_.text(rest.substr(0, at));
      if (!first.empty()) prompt_.markup(first);
      rest.remove_prefix(at + first.size());
    }
  }

  void append_tools() {
    prompt_.text("\n\n");
    append_preamble();
    bool is_first = true;
    for (const json::Value& tool : *conversation_.tools) {
      if (!std::exchange(is_first, false)) prompt_.text("\n");
      prompt_.text(spaced_json(tool_function(tool)));
    }
    prompt_.text("\n</functions>\n");
  }

  bool is_behind_user(size_t i) const { return static_cast<ptrdiff_t>(i) > last_user_; }

  // Whether the answer behind message i is a part of the prompt, or begins where it ends.
  bool is_answered(size_t i) const {
    return i + 1 < conversation_.messages.size() || conversation_.add_generation_prompt;
  }

  void open_answer(size_t i) {
    const bool thinks = conversation_.thinking && static_cast<ptrdiff_t>(i) >= last_user_;
    prompt_.markup(thinks ? markup::kThinkBegin : markup::kThinkEnd);
  }

  void append_user(size_t i) {
    prompt_.markup(markup::kUser).text(content_of(conversation_.messages[i]));
    if (!is_answered(i)) return;
    prompt_.markup(markup::kAssistant);
    open_answer(i);
  }

  void append_answer(size_t i) {
    const Message& message = conversation_.messages[i];
    if (conversation_.thinking && is_behind_user(i)) {
      prompt_.text(message.reasoning).markup(markup::kThinkEnd);
    }
    prompt_.text(content_of(message));
    if (!message.tool_calls.empty()) {
      calls_ = i;
      num_whole_calls_ = 0;
      tag("\n\n<", "function_calls>\n");
      for (size_t call = 0; call < message.tool_calls.size(); ++call) {
        if (call > 0) prompt_.text("\n");
        append_call(message.tool_calls[call]);
      }
      tag("\n</", "function_calls>");
    }
    prompt_.markup(markup::kEos);
  }

  // Arguments that are no object, as of a call that was cut, stand as they are: a conversation has to go on from them.
  void append_call(const ToolCall& call) {
    tag("<", "invoke name=\"").text(call.name).text("\">\n");
    const Result<json::Value> arguments = json::parse(call.arguments);
    if (arguments && arguments->is_object()) {
      ++num_whole_calls_;
      append_parameters(*arguments);
    } else {
      prompt_.text(call.arguments);
    }
    prompt_.text("\n");
    tag("</", "invoke>");
  }

  void append_parameters(const json::Value& arguments) {
    bool is_first = true;
    for (const auto& [name, value] : arguments.items()) {
      if (!std::exchange(is_first, false)) prompt_.text("\n");
      const bool is_text = value.is_string();
      tag("<", "parameter name=\"").text(name);
      prompt_.text(is_text ? "\" string=\"true\">" : "\" string=\"false\">");
      prompt_.text(is_text ? value.get<std::string>() : spaced_json(value));
      tag("</", "parameter>");
    }
  }

  // validate() has seen to it that calls come before. A call that was cut may have no result.
  Status append_result(size_t i) {
    const size_t num_calls = conversation_.messages[calls_].tool_calls.size();
    const bool follows_group = num_results_ == 0 && conversation_.messages[i - 1].role == "tool";
    if (follows_group) {
      return invalid_argument(place_of(i) + ": is one result of a tool too many, " +
                              place_of(calls_) + " has " + std::to_string(num_calls) +
                              " tool_calls");
    }
    if (num_results_++ == 0) prompt_.text("\n\n<function_results>");
    prompt_.text("\n<result>").text(content_of(conversation_.messages[i])).text("</result>");
    const bool is_next_result =
        i + 1 < conversation_.messages.size() && conversation_.messages[i + 1].role == "tool";
    if (is_next_result && num_results_ < num_calls) return {};
    if (num_results_ < num_whole_calls_) return missing_result();
    num_results_ = 0;
    prompt_.text("\n</function_results>");
    if (!is_answered(i)) return {};
    prompt_.text("\n\n");
    open_answer(i);
    return {};
  }

  Error missing_result() const {
    return {ErrorCode::kInvalidArgument,
            place_of(calls_) + ".tool_calls[" + std::to_string(num_results_) +
                "]: the call has no result, and the calls before it have"};
  }

  const Conversation& conversation_;
  PromptBuilder prompt_;
  ptrdiff_t last_user_ = -1;
  size_t calls_ = 0;            // the message whose calls are being answered
  size_t num_whole_calls_ = 0;  // its calls that were not cut
  size_t num_results_ = 0;      // of the group that is open
};

}  // namespace

Result<std::vector<Segment>> encode_v32(const Conversation& conversation) {
  return DsmlEncoder(conversation).encode();
}

}  // namespace fathom::text
