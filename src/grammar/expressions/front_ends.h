#pragma once
// Patterns, EBNF and Lark grammars to expressions and rules. A mistake in the source fails the budget, and what is
// returned then does not matter.
//
//   Expression root = lower_ebnf(text, rules);
//   if (!rules.budget().ok()) return rules.budget().error();
//
// Used by one thread.

#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

Expression lower_regex(std::string_view pattern, RuleSet& rules);
// REQUIRES: the node is one of ebnf(), of lark().
Expression lower_ebnf(const Expression::Node& source, RuleSet& rules);
Expression lower_lark(const Expression::Node& source, RuleSet& rules);

// What <...> in rules stands for; the error says why it is nothing.
Result<Marker> find_token(const std::string& name, const TokenLookup* tokens);

}  // namespace fathom::grammar
