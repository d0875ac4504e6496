#pragma once
// The fields of /v1/responses and of its settings (OpenAI's newer form): one FieldTable each. Items and tools are in
// response_item_fields.h.
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

}  // namespace fathom::api
