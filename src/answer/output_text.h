#pragma once
// What a model wrote, told apart as chat does it: the answers of /parse_function_call and /separate_reasoning.
//
//   response.body = call_text_answer(request);   // {"normal_text", "calls": [{"tool_index", "name", "parameters"}]}
//
// Pure functions, thread-safe. Linear in the text.

#include <string>

#include "api/output_text_request.h"

namespace fathom::answer {

// Calls in the order of the text, tool_index counting them; parameters are text as the model wrote it. Of calls that
// are not shown nothing is.
std::string call_text_answer(const api::CallTextRequest& request);
// {"reasoning_text": "...", "text": "..."}
std::string reasoning_text_answer(const api::ReasoningTextRequest& request);

}  // namespace fathom::answer
