#pragma once
// tool_choice and parallel_tool_calls: which tools the prompt shows and what calls the output may or must
// hold.
//
//   const json::Value tools = read_tools(reader, model);
//   ToolUse use = read_tool_use(reader, model, tools, /*has_output_form=*/false);
//   if (use.shows_tools) chat.tools = shown_tools(tools);
//
// Pure, thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/field_reader.h"

namespace fathom::api {

enum class ToolMode { kAuto, kNone, kRequired, kNamed };

// What a body says about calls, in whichever form.
struct ToolChoice {
  ToolMode mode = ToolMode::kAuto;
  bool is_some = false;  // only the tools of these names may be called
  std::vector<std::string> names{};
  std::string field = "tool_choice";  // that says it
  std::optional<bool> parallel{};  // false: at most one call; not set: as many as the model likes
};

struct ToolUse {
  bool shows_tools = false;  // in the prompt; the output is searched for calls
  ToolConstraint constraint;
};

// What a choice means for these tools. Calls are constrained when tool_choice is required or a function; otherwise, to
// allow but not force them, when the server is started so, a tool says "strict": true or has a grammar,
// parallel_tool_calls is false, tool_choice allows only some of the tools, or there is a form that the rest of the
// output has (has_output_form: response_format and its like). For the last two alone arguments may be any JSON object.
ToolUse use_tools(FieldReader& reader, const ServedModel& model, const json::Value& tools,
                  const ToolChoice& choice, bool has_output_form);
// The same for tool_choice and parallel_tool_calls of chat, or function_call.
ToolUse read_tool_use(FieldReader& reader, const ServedModel& model, const json::Value& tools,
                      bool has_output_form);

}  // namespace fathom::api
