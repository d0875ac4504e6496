#pragma once
// A text of some form as it stands in a JSON string, without the quotes: every character that JSON escapes is written
// as its escape, in one way.
//
//   Expression input = json_quoted_text(lark(definition), rules);     // a line break comes as \n
//
// Used by one thread. A special token in the text fails the rules' budget: it cannot stand in a string.

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

Expression json_quoted_text(const Expression& text, RuleSet& rules);

}  // namespace fathom::grammar
