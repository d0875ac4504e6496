#pragma once
// The fields of what /v1/responses reads in `input`, `tools` and `tool_choice`: one FieldTable each.
//
//   check_names(item, "input[0]", message_item_fields(), problem);
//
// Constants; thread-safe.

#include "api/tables/field_table.h"

namespace fathom::api {

const FieldTable& message_item_fields();
const FieldTable& item_part_fields();  // content[] and output[]
const FieldTable& call_item_fields();
const FieldTable& custom_call_item_fields();
const FieldTable& result_item_fields();  // of either call
const FieldTable& reasoning_item_fields();
const FieldTable& item_reference_fields();
const FieldTable& flat_tool_fields();     // tools[]: function, custom and namespace
const FieldTable& flat_choice_fields();   // tool_choice that names one tool
const FieldTable& flat_allowed_fields();  // tool_choice of the type allowed_tools

}  // namespace fathom::api
