#pragma once
// Patterns to expressions: for a whole text, or for the contents of a JSON string.
//
//   Expression zip = parse_regex("[0-9]{5}", {}, budget);
//
// A mistake fails the budget. Pure functions, thread-safe.

#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"

namespace fathom::grammar {

struct RegexOptions {
  // What the pattern reads stands inside a JSON string: quotes, backslashes and control characters are
  // written as escapes.
  bool in_json_string = false;
  // The pattern need not match from the start to the end (JSON schema): ^ and $ say where it does.
  bool search = false;
  // Where dialects differ, what any of them takes; else what all of them take.
  bool generous = false;
};

Expression parse_regex(std::string_view pattern, const RegexOptions& options, Budget& budget);

// One character of the ranges as it stands inside a JSON string.
Expression json_string_character(const std::vector<CodePointRange>& ranges);

}  // namespace fathom::grammar
