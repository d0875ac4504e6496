#pragma once
// `tools` and `tool_choice` of OpenAI's Responses form. Tools of a namespace become NAMESPACE__NAME. What a server
// would run (web_search, file_search, mcp, ...) and kinds of tools without a schema are left out: the model cannot be
// offered them, and a client that brings them beside its own tools goes on without.
//
//   const FlatTools tools = read_flat_tools(reader, model);
//   const ToolChoice choice = read_flat_choice(reader, model, tools);
//
// Pure, thread-safe.

#include <set>
#include <string>

#include "api/custom_tools.h"
#include "api/tool_fields.h"
#include "base/json.h"

namespace fathom::api {

struct FlatTools {
  json::Value tools = json::Value::array();  // in chat's form
  ToolKinds kinds;                           // of those that are no plain functions
  std::set<std::string> left_out;            // types of those that are not offered
};

FlatTools read_flat_tools(FieldReader& reader, const ServedModel& model);

// "auto", "none", "required", an object that names a tool, or {"type": "allowed_tools", "mode", "tools"}. One that
// names a tool that was left out is a problem.
ToolChoice read_flat_choice(FieldReader& reader, const ServedModel& model, const FlatTools& tools);

}  // namespace fathom::api
