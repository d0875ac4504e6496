#pragma once
// The tool calls of one choice, as all chat forms see them: their ids, and whether the answer ended with calls that a
// client can make.
//
//   tally.count(event);
//   if (choice.finish() == Finish::kStop && tally.all_complete()) reason = "tool_calls";
//
// Not synchronised.

#include <string>
#include <string_view>

#include "answer/pieces/draw_id.h"
#include "text/output_parser.h"

namespace fathom::answer {

struct CallTally {
  int num_calls = 0, num_complete = 0;

  void count(const text::OutputEvent& event) {
    using Kind = text::OutputEvent::Kind;
    num_calls += event.kind == Kind::kToolCallBegin;
    num_complete += event.kind == Kind::kToolCallEnd && event.is_complete;
  }
  bool all_complete() const { return num_calls > 0 && num_complete == num_calls; }
};

// A call's id: what the model wrote where its format has one, else a new one.
inline std::string call_id(const text::OutputEvent& begin, std::string_view prefix) {
  return begin.id.empty() ? draw_id(prefix) : begin.id;
}

}  // namespace fathom::answer
