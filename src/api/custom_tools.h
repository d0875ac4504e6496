#pragma once
// Tools of the type custom: the model writes a text, which may have to follow a grammar. The templates know functions
// only, so the model sees a function whose one argument is the string `input`.
//
//   {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {"syntax": "lark", ..}}}}
//
//   json::Value tools = read_tools(reader, model);      // custom ones in this form, chat's, whatever the endpoint's is
//   chat.tools = shown_tools(tools);
//
// Pure, thread-safe.

#include <cstddef>
#include <string>
#include <string_view>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "api/tool_kinds.h"
#include "base/json_fwd.h"

namespace fathom::api {

// The argument that is a custom tool's input.
inline constexpr const char* kInputKey = "input";
inline constexpr size_t kMaxToolNameBytes = 256;  // of a custom tool and of a function

// `inner` is chat's tools[].custom, `flat` a tool of /v1/responses; the result has chat's form. Null: a problem is set.
json::Value read_custom_tool(const json::Value& inner, const std::string& path,
                             const ServedModel& model, FieldProblem& problem);
json::Value read_flat_custom_tool(const json::Value& flat, const std::string& path,
                                  const ServedModel& model, FieldProblem& problem);

// REQUIRES of the rest: tools that were read.
bool is_custom_tool(const json::Value& tool);
// Its input follows a grammar.
bool has_grammar(const json::Value& custom_tool);
// Of a custom tool or a function.
std::string offered_name(const json::Value& tool);
void set_offered_name(json::Value& tool, const std::string& name);

// What the prompt shows: functions.
json::Value shown_tools(const json::Value& tools);
ToolKinds kinds_of(const json::Value& tools);

// {"input": "..."}, as the model writes it in a call.
std::string arguments_of_input(std::string_view input);

}  // namespace fathom::api
