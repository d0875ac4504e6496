#pragma once
// `system`, `messages` and `tools` of Anthropic's Messages form -> text::Conversation: blocks of text, thinking,
// tool_use and tool_result. One message may become several, because results of tools are messages of their own here.
// What a template has no place for (pictures, documents, tools that a server would run) is refused by name; thinking
// of earlier turns is left out, as every published template does.
//
//   PlacedMessages read = read_block_messages(reader, model);
//   chat.messages = std::move(read.messages);
//   chat.tools = read_custom_tools(reader, model);
//
// Pure, thread-safe.

#include <string>
#include <vector>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "text/conversation.h"

namespace fathom::api {

// The one key of a tool_use's `input` where the arguments are no JSON object, in answers and in what clients send back.
inline constexpr const char* kInvalidJsonKey = "INVALID_JSON";

struct PlacedMessages {
  std::vector<text::Message> messages;
  std::vector<std::string> places;  // of each in the body: "system", "messages[2].content[0]"
};

PlacedMessages read_block_messages(FieldReader& reader, const ServedModel& model);

// Array of functions {name, description, parameters, strict}, perhaps empty.
json::Value read_custom_tools(FieldReader& reader, const ServedModel& model);

}  // namespace fathom::api
