#pragma once
// What a model's output is told apart into (output_parser.h).
//
//   OutputEvent text{.kind = OutputEvent::Kind::kContent, .text = "Hello"};
//
// Owns its values. Not synchronised.

#include <string>

namespace fathom::text {

struct OutputEvent {
  enum class Kind {
    kReasoning,          // text
    kContent,            // text
    kToolCallBegin,      // index, text = the function's name, id = as the model wrote it or empty
    kToolCallArguments,  // index, text = a piece of the JSON object
    kToolCallEnd,        // index, is_complete; follows every begin
  };
  Kind kind = Kind::kContent;
  std::string text = {};
  int index = -1;  // of the call in the output, from 0
  std::string id = {};
  bool is_complete = false;  // the arguments are one JSON object
  bool operator==(const OutputEvent&) const = default;
};

}  // namespace fathom::text
