#pragma once
// Patterns to expressions: for a whole text, or for the contents of a JSON string.
//
//   Expression zip = parse_regex("[0-9]{5}", {}, budget);
//
// A mistake fails the budget. Look-around comes as look() (expression.h), which only text_set_of() knows; notes say
// whether there is any. Pure functions, thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

struct RegexNotes {
  bool has_look = false;  // look-around, borders of words, anchors within
  bool is_lazy = false;   // a repetition that takes as little as it can
};

struct RegexOptions {
  // The pattern need not match from the start to the end (JSON schema): ^ and $ say where it does.
  bool search = false;
  // Where dialects differ, what any of them takes; else what all of them take.
  bool generous = false;
  bool ignore_case = false;
  bool dot_all = false;        // a dot is any character
  std::string name = "regex";  // for messages
  RegexNotes* notes = nullptr;
};

Expression parse_regex(std::string_view pattern, const RegexOptions& options, Budget& budget);

// The expression without look(): the same texts.
Expression without_looks(Expression expression, const RegexNotes& notes, Budget& budget);

// One character of the ranges as it stands inside a JSON string.
Expression json_string_character(const std::vector<CodePointRange>& ranges);

}  // namespace fathom::grammar
