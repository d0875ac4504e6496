#pragma once
// The fields of every endpoint that takes JSON, and of the objects within them: one FieldTable each.
//
//   FieldReader reader(body, chat_fields(), problem);
//   for (const FieldRule& rule : chat_fields().rules()) ...
//
// Constants; thread-safe.

#include <span>
#include <string_view>

#include "api/tables/field_table.h"
#include "http/message.h"

namespace fathom::api {

const FieldTable& chat_fields();             // /v1/chat/completions
const FieldTable& completion_fields();       // /v1/completions
const FieldTable& generate_fields();         // /generate
const FieldTable& sampling_params_fields();  // of /generate
const FieldTable& tokenize_fields();         // /tokenize
const FieldTable& detokenize_fields();       // /detokenize
const FieldTable& score_fields();            // /v1/score
const FieldTable& call_text_fields();        // /parse_function_call
const FieldTable& reasoning_text_fields();   // /separate_reasoning
const FieldTable& pause_fields();            // /pause_generation
const FieldTable& continue_fields();         // /continue_generation
const FieldTable& abort_fields();            // /abort_request
const FieldTable& start_profile_fields();    // /start_profile

// Of a conversation, in chat and /tokenize.
const FieldTable& message_fields();
const FieldTable& content_part_fields();
const FieldTable& call_fields();             // messages[].tool_calls[]
const FieldTable& called_function_fields();  // messages[].tool_calls[].function
const FieldTable& tool_fields();
const FieldTable& function_fields();  // tools[].function
const FieldTable& tool_choice_fields();
const FieldTable& allowed_tools_fields();    // tool_choice.allowed_tools
const FieldTable& chosen_tool_fields();      // tool_choice.allowed_tools.tools[]
const FieldTable& chosen_function_fields();  // tool_choice.function and that of a chosen tool
const FieldTable& template_kwargs_fields();
const FieldTable& thinking_fields();
const FieldTable& reasoning_fields();

// A path that takes JSON, its fields, and what becomes of names that they do not have unless the operator says it.
struct EndpointFields {
  std::string_view path;
  const FieldTable& (*fields)();
  UnknownFields unknown = UnknownFields::kRefuse;
  http::ClientForm form = http::ClientForm::kOpenAi;
};
std::span<const EndpointFields> endpoints_with_fields();

}  // namespace fathom::api
