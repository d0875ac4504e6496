#pragma once
// tool_choice and parallel_tool_calls: which tools the prompt shows and what calls the output may or must
// hold.
//
//   chat.tools = read_tools(reader, model);
//   ToolUse use = read_tool_use(reader, model, chat.tools, /*has_output_form=*/false);
//   if (!use.shows_tools) chat.tools = json::Value::array();
//
// Pure, thread-safe.

#include "api/field_reader.h"
#include "api/generation_request.h"
#include "api/served_model.h"

namespace fathom::api {

struct ToolUse {
  bool shows_tools = false;  // in the prompt; the output is searched for calls
  ToolConstraint constraint;
};

// Calls are constrained when tool_choice is required or a function; otherwise, to allow but not force them,
// when the server is started so, a tool says "strict": true, parallel_tool_calls is false, tool_choice allows
// only some of the tools, or there is a form that the rest of the output has (has_output_form: response_format
// and its like). For the last two alone arguments may be any JSON object.
ToolUse read_tool_use(FieldReader& reader, const ServedModel& model, const json::Value& tools,
                      bool has_output_form);

}  // namespace fathom::api
