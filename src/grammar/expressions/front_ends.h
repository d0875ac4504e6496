#pragma once
// Patterns and EBNF to expressions and rules. A mistake in the source fails the budget, and what is returned then
// does not matter.
//
//   Expression root = lower_ebnf(text, rules);
//   if (!rules.budget().ok()) return rules.budget().error();
//
// Used by one thread.

#include <string_view>

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

Expression lower_regex(std::string_view pattern, RuleSet& rules);
Expression lower_ebnf(std::string_view text, RuleSet& rules);

}  // namespace fathom::grammar
