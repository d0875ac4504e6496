#pragma once
// The fields of /v1/messages and of the objects within (Anthropic's form): one FieldTable each.
//
//   check_names(body, messages_fields(), problem);
//
// Constants; thread-safe.

#include "api/tables/field_table.h"

namespace fathom::api {

const FieldTable& messages_fields();  // also of /v1/messages/count_tokens
const FieldTable& thinking_config_fields();
const FieldTable& output_config_fields();
const FieldTable& chosen_message_tool_fields();  // tool_choice

const FieldTable& turn_fields();  // messages[]
const FieldTable& text_block_fields();
const FieldTable& thinking_block_fields();
const FieldTable& redacted_block_fields();
const FieldTable& tool_use_block_fields();
const FieldTable& tool_result_block_fields();
const FieldTable& message_tool_fields();  // tools[]

}  // namespace fathom::api
