#pragma once
// `system` and `messages` of Anthropic's Messages form -> text::Conversation: blocks of text, thinking, tool_use and
// tool_result, and names in brackets of what no text model reads (unread_parts.h). One message may become several,
// because results of tools are messages of their own here. Thinking is the reasoning of its message.
//
// A system message within the conversation stays where it is, as text of the user's turn beside it. The templates
// would move it to the front, where it changes the prompt from its beginning: the prefix cache would find nothing of a
// conversation to which a client adds such a message every turn.
//
//   PlacedMessages read = read_block_messages(reader, model);
//   chat.messages = std::move(read.messages);
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

}  // namespace fathom::api
