#pragma once
// Rules of the fields that chat and /tokenize make a prompt of.
//
//   static const FieldTable table("tokenize", {conversation_rules(), kTokenizeRules});
//
// Constants; thread-safe.

#include <span>

#include "api/tables/field_table.h"

namespace fathom::api {

// tools, tool_choice, parallel_tool_calls, chat_template_kwargs, reasoning_effort, continue_final_message, and other
// ways to make a prompt that are refused.
std::span<const FieldRule> conversation_rules();

}  // namespace fathom::api
