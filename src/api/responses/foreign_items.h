#pragma once
// Items of the Responses form that this server never makes, as a client's history may hold them: calls of tools with
// types of their own (local_shell_call, shell_call, apply_patch_call, computer_call, tool_search_call, ...) and what
// they gave. To the model they are calls of functions of these names.
//
//   foreign_call(R"({"type": "local_shell_call", "call_id": "a", "action": {"command": ["ls"]}})")
//   // {.id = "a", .name = "local_shell", .arguments = R"({"command": ["ls"]})"}
//
// Pure, thread-safe.

#include <optional>
#include <set>
#include <string>

#include "base/json_fwd.h"
#include "text/conversation.h"

namespace fathom::api {

// Nothing: it is no call that a client answered (what a server ran has no call_id), or has no shape that is known.
std::optional<text::ToolCall> foreign_call(const json::Value& item);
// A result, of a call with that id: the text in it, and a note for each part that is none.
std::optional<text::Message> foreign_result(const json::Value& item);

// The ids that results in an input name.
std::set<std::string> ids_of_results(const json::Value& input);

}  // namespace fathom::api
