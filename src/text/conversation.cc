#include "text/conversation.h"

#include <algorithm>
#include <string_view>

#include "text/tool_schema.h"

namespace fathom::text {
namespace {

// Long or odd values are cut, so that an error line stays a line.
std::string in_quotes(std::string_view value) {
  return json::dump(json::Value(std::string(value.substr(0, 64))));
}

Status validate_calls(const Message& message, const std::string& where) {
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    const std::string place = where + ".tool_calls[" + std::to_string(i) + "]";
    if (call.name.empty()) return invalid_argument(place + ": the function has no name");
  }
  return {};
}

// `calls` is the message whose calls may be answered here, or null.
Status validate_result(const Message& message, const Message* calls, const std::string& where) {
  if (calls == nullptr) {
    return invalid_argument(where +
                            ": role is \"tool\" but no assistant message with tool_calls "
                            "comes right before it");
  }
  const auto is_answered = [&](const ToolCall& call) {
    return call.id.empty() || call.id == message.tool_call_id;
  };
  if (!message.tool_call_id.empty() && std::ranges::none_of(calls->tool_calls, is_answered)) {
    return invalid_argument(where + ": tool_call_id " + in_quotes(message.tool_call_id) +
                            " names none of the calls before it");
  }
  return {};
}

Status validate_shape(const Message& message, const std::string& where) {
  const std::string& role = message.role;
  const bool is_assistant = role == "assistant";
  if (!is_assistant && role != "system" && role != "developer" && role != "user" &&
      role != "tool") {
    return invalid_argument(where + ": role is " + in_quotes(role) +
                            ", it must be system, developer, user, assistant or tool");
  }
  if (!is_assistant && !message.tool_calls.empty()) {
    return invalid_argument(where + ": tool_calls belong to the assistant, the role is " +
                            in_quotes(role));
  }
  if (!message.content && message.tool_calls.empty()) {
    return invalid_argument(where + ": content is missing" +
                            (is_assistant ? ", and so are tool_calls" : ""));
  }
  return {};
}

}  // namespace

Status validate(const Conversation& conversation) {
  const Message* calls = nullptr;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (Status shape = validate_shape(message, where); !shape) return shape;
    if (Status call = validate_calls(message, where); !call) return call;
    if (message.role == "tool") {
      if (Status result = validate_result(message, calls, where); !result) return result;
    } else {
      calls = message.tool_calls.empty() ? nullptr : &message;
    }
  }
  return validate_tools(conversation.tools);
}

}  // namespace fathom::text
