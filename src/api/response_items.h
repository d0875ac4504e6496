#pragma once
// `input`, `tools` and `tool_choice` of OpenAI's Responses form. Items become messages of a conversation: a call of the
// assistant joins the message that it followed, so that the conversation is the one that chat has. Reasoning of
// earlier turns is left out, as every published template does; other items are refused by name.
//
//   PlacedMessages read;
//   read_items(reader, model, read);          // appends
//   chat.tools = read_flat_tools(reader, model);
//
// Pure, thread-safe.

#include "api/message_blocks.h"
#include "api/tool_fields.h"

namespace fathom::api {

// The call goes on with what `read` holds.
void read_items(FieldReader& reader, const ServedModel& model, PlacedMessages& read);

// Array of functions {name, description, parameters, strict}, perhaps empty.
json::Value read_flat_tools(FieldReader& reader, const ServedModel& model);

// "auto", "none", "required", {"type": "function", "name"} or {"type": "allowed_tools", "mode", "tools"}.
ToolChoice read_flat_choice(FieldReader& reader, const ServedModel& model);

}  // namespace fathom::api
