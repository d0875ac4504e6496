#pragma once
// How an answer says why it ended.
//
//   append_openai_finish(out, choice, calls_are_complete);   // "finish_reason":"stop","matched_stop":"\n\n"
//   append_native_finish(out, choice);                   // {"type":"length","length":8} or null
//
// Pure functions, thread-safe.

#include <string>

#include "answer/choice.h"

namespace fathom::answer {

// The two keys; null and null while the choice goes on.
void append_openai_finish(std::string& out, const Choice& choice, bool calls_are_complete);
void append_native_finish(std::string& out, const Choice& choice);

}  // namespace fathom::answer
