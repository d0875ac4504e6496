#pragma once
// What the arguments of a request's tools must fit, and what becomes of schemas that cannot be compiled.
//
//   std::vector<grammar::Tool> tools = tools_of(request.chat.tool_constraint);
//   if (!grammar::compile(tool_calls(syntax, tools, options))) {
//     if (Status status = let_go_of_schemas(tools, std::nullopt); !status) refuse(status.error());
//   }
//
// Pure functions, thread-safe.

#include <optional>
#include <vector>

#include "api/generation_request.h"
#include "base/result.h"
#include "grammar/expressions/expression.h"
#include "grammar/tool_calls.h"

namespace fathom::answer {

// Where the constraint follows no schemas, the arguments of all are any JSON object. A tool whose schema names no
// member and says nothing of any takes none: OpenAI's API reads parameters that are left out as an empty list.
std::vector<grammar::Tool> tools_of(const api::ToolConstraint& constraint);

// Tools that are not strict and whose schemas do not compile take any JSON object from now on; where each schema
// compiles and all together do not, all of those that are not strict. An error names a tool that is strict, and what
// is wrong with its schema. At most about a second and a half of processor time.
// dsml_mark: calls are in DSML, which cannot write all that JSON can.
Status let_go_of_schemas(std::vector<grammar::Tool>& tools,
                         const std::optional<grammar::Marker>& dsml_mark);

}  // namespace fathom::answer
