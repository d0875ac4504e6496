#pragma once
// How an answer says why it ended.
//
//   append_openai_finish(out, choice, FinishedCalls::kNone);   // "finish_reason":"stop","matched_stop":"\n\n"
//   append_native_finish(out, choice);                   // {"type":"length","length":8} or null
//
// Pure functions, thread-safe.

#include <string>

#include "answer/choice.h"

namespace fathom::answer {

// What an answer ended with that a client can call, and in which form it sees it.
enum class FinishedCalls { kNone, kTools, kFunction };

// The two keys; null and null while the choice goes on.
void append_openai_finish(std::string& out, const Choice& choice, FinishedCalls calls);
void append_native_finish(std::string& out, const Choice& choice);

}  // namespace fathom::answer
