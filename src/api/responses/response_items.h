#pragma once
// `input` of OpenAI's Responses form. Items become messages of a conversation: a call of the assistant joins the
// message that it followed, and reasoning the one that it came before, so that the conversation is the one that chat
// has. Calls of tools that have types of their own (local_shell_call, apply_patch_call,
// ...) become calls of functions of these names where their results are there too; other items are left out: a
// client's history may hold what another server made, and must not end the conversation.
//
//   PlacedMessages read;
//   read_items(reader, {.model = model, .find_item = find_item}, read);          // appends
//
// Pure, thread-safe.

#include <functional>
#include <optional>
#include <string>

#include "api/message_blocks.h"

namespace fathom::api {

// The caller's stored item of that id as JSON; nothing: there is none. Empty: nothing is ever stored.
using FindItem = std::function<std::optional<std::string>(const std::string& id)>;

struct ItemSources {
  const ServedModel& model;
  const FindItem& find_item;
};

// The call goes on with what `read` holds.
void read_items(FieldReader& reader, const ItemSources& sources, PlacedMessages& read);

}  // namespace fathom::api
