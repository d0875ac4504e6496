#pragma once
// The fields of /v1/responses and of the objects within (OpenAI's newer form): one FieldTable each.
//
//   check_names(body, responses_fields(), problem);
//
// Constants; thread-safe.

#include "api/tables/field_table.h"

namespace fathom::api {

const FieldTable& responses_fields();
const FieldTable& response_reasoning_fields();
const FieldTable& text_config_fields();
const FieldTable& flat_format_fields();  // text.format, and output_config.format of /v1/messages
const FieldTable& response_stream_fields();

const FieldTable& message_item_fields();
const FieldTable& item_part_fields();  // content[] and output[]
const FieldTable& call_item_fields();
const FieldTable& result_item_fields();
const FieldTable& reasoning_item_fields();
const FieldTable& flat_tool_fields();     // tools[]
const FieldTable& flat_choice_fields();   // tool_choice of the type function
const FieldTable& flat_allowed_fields();  // tool_choice of the type allowed_tools

}  // namespace fathom::api
