#pragma once
// White space between the tokens of JSON.
//
//   Expression pair = sequence({json_space(rules), literal("\"age\""), json_colon(rules), json_integer(rules)});
//
// The usual forms are bounded, so that a model cannot write it forever: after { [ and , and before } ] nothing, one
// space, or a line break and up to 32 spaces or up to 16 tabs; around a colon and before a comma nothing or one space.
// Where the rules have a pattern of their own (JsonStyle), it says what stands at each of these places.
//
// A pattern that is none of white space fails the rules' budget. Used by one thread.

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

Expression json_space(RuleSet& rules);  // after { [ , and before } ]
Expression json_colon(RuleSet& rules);  // with the white space around it
Expression json_comma(RuleSet& rules);  // with the white space before it

}  // namespace fathom::grammar
