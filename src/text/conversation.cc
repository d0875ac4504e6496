#include "text/conversation.h"

#include <string_view>

#include "text/pieces/json_fields.h"
#include "text/tool_schema.h"

namespace fathom::text {
namespace {

Status validate_calls(const Message& message, const std::string& where) {
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const ToolCall& call = message.tool_calls[i];
    const std::string place = where + ".tool_calls[" + std::to_string(i) + "]";
    if (call.name.empty()) return invalid_argument(place + ": the function has no name");
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

Error result_without_call(const std::string& where) {
  return {
      ErrorCode::kInvalidArgument,
      where + ": role is \"tool\" but no assistant message with tool_calls comes right before it"};
}

Status validate(const Conversation& conversation) {
  bool follows_calls = false;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (Status shape = validate_shape(message, where); !shape) return shape;
    if (Status call = validate_calls(message, where); !call) return call;
    if (message.role != "tool") {
      follows_calls = !message.tool_calls.empty();
    } else if (!follows_calls) {
      return result_without_call(where);
    }
  }
  return validate_tools(*conversation.tools);
}

}  // namespace fathom::text
