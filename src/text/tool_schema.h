#pragma once
// Reading the `tools` of a request. OpenAI clients wrap a function as {"type": "function", "function":
// {...}}; some send the inner object alone. Both are accepted everywhere.
//
//   for (const json::Value& tool : *conversation.tools) use(tool_function(tool)["name"]);
//
// Thread-safe (no state).

#include <string>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::text {

// Array of well-formed tools, empty array or null.
Status validate_tools(const json::Value& tools);

// REQUIRES of the rest: validate_tools() succeeded on the array that holds `tool`.
const json::Value& tool_function(const json::Value& tool);
std::string tool_name(const json::Value& tool);
std::string tool_description(const json::Value& tool);  // empty where there is none
// Where there are none: an object without properties, which is what OpenAI's API means by that.
json::Value tool_parameters(const json::Value& tool);

// Python's json.dumps(value, ensure_ascii=False), as Hugging Face's `tojson` filter writes it:
// ", " between items, ": " after keys.
std::string spaced_json(const json::Value& value);
// The same with "," and ":", as Kimi's template asks for it.
std::string compact_json(const json::Value& value);

}  // namespace fathom::text
