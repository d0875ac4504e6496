#pragma once
// The fields of custom tools and of calls of them, in chat's form and, where it differs, in that of /v1/responses: one
// FieldTable each.
//
//   FieldReader tool(value, "tools[0].custom", custom_tool_fields(), problem);
//
// Constants; thread-safe.

#include "api/tables/field_table.h"

namespace fathom::api {

const FieldTable& custom_tool_fields();         // tools[].custom
const FieldTable& custom_format_fields();       // tools[].custom.format
const FieldTable& custom_grammar_fields();      // tools[].custom.format.grammar
const FieldTable& called_custom_fields();       // messages[].tool_calls[].custom
const FieldTable& chosen_custom_fields();       // tool_choice.custom
const FieldTable& flat_custom_format_fields();  // tools[].format of /v1/responses

}  // namespace fathom::api
