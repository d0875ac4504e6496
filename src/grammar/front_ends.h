#pragma once
// The front ends: source text to expressions and rules. A mistake in the source fails the budget, and what
// is returned then does not matter.
//
//   Expression root = lower_ebnf(text, rules);
//   if (!rules.budget().ok()) return rules.budget().error();
//
// Used by one thread.

#include <string_view>

#include "grammar/expression.h"
#include "grammar/rule_set.h"

namespace fathom::grammar {

Expression lower_json_object(RuleSet& rules);
Expression lower_json_schema(std::string_view schema, RuleSet& rules);
Expression lower_regex(std::string_view pattern, RuleSet& rules);
Expression lower_ebnf(std::string_view text, RuleSet& rules);

}  // namespace fathom::grammar
