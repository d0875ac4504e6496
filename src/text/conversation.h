#pragma once
// A chat request as plain data: what the server reads from `messages` and `tools`, what the encoders of
// chat_encoder.h turn into a prompt.
//
//   Conversation chat;
//   chat.messages.push_back({.role = "user", .content = "weather in Oslo?"});
//   chat.tools = *json::parse(R"([{"type": "function", "function": {"name": "get_weather"}}])");
//
// Owns its values. Not synchronised.

#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::text {

struct ToolCall {
  std::string id;    // as the client or the model wrote it; empty when there is none
  std::string name;  // of the function
  // As the model wrote them: one JSON object, or the beginning of one where its answer was cut. Any text will do,
  // since the templates print it as it is and no text of a client becomes markup.
  std::string arguments;
};

struct Message {
  std::string role;  // system, developer (an alias of system), user, assistant or tool
  std::optional<std::string> content = std::nullopt;  // required except beside tool_calls
  std::vector<ToolCall> tool_calls = {};              // assistant only
  std::string tool_call_id = {};  // tool only; empty = in the order of the calls
  std::string name = {};          // speaker or function; only kimi-k2 shows it
  // Assistant only: what it thought. Only v3.2 shows it, and of the messages behind the last user's alone; for all
  // other formats a client that sends it back is served by leaving it out.
  std::string reasoning = {};
};

struct Conversation {
  std::vector<Message> messages = {};
  // Array of {"type": "function", "function": {name, description, parameters}} or of the inner objects
  // alone. Null and the empty array both mean that there are no tools.
  json::Box tools{};
  bool add_generation_prompt = true;  // end the prompt where the assistant begins to write
  bool thinking = false;  // v3.1 and v3.2 choose by it; the other templates do not look at it
};

// Every rule that does not depend on the chat format: known roles, content where it is needed, calls with
// a name, tool results only behind calls (which of them: call_results.h), well-formed tools.
// Errors name the message by its index.
Status validate(const Conversation& conversation);
// The error of a tool result at `where` that no calls come before.
Error result_without_call(const std::string& where);

}  // namespace fathom::text
