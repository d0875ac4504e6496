#pragma once
// The `usage` object of the OpenAI endpoints.
//
//   append_usage(out, total_usage(choices, /*choices_per_item=*/n));
//
// Pure functions, thread-safe.

#include <span>
#include <string>

#include "answer/choice.h"

namespace fathom::answer {

// The sum over an answer: a prompt counts once however many choices it has.
ChoiceCounts total_usage(std::span<const Choice> choices, int choices_per_item);

// {"prompt_tokens":..,"total_tokens":..,"completion_tokens":..,"prompt_tokens_details":{...},...}
void append_usage(std::string& out, const ChoiceCounts& counts);

}  // namespace fathom::answer
