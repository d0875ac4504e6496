#pragma once
// JSON and its schemas to expressions and rules. A mistake in the schema fails the budget, and what is returned then
// does not matter.
//
//   Expression root = lower_json_schema(text, {}, rules);
//   if (!rules.budget().ok()) return rules.budget().error();
//
// Used by one thread.

#include <string_view>

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

Expression lower_json_object(const JsonStyle& style, RuleSet& rules);
Expression lower_json_member(std::string_view name, const Expression& text, RuleSet& rules);
Expression lower_json_schema(std::string_view schema, const JsonStyle& style, RuleSet& rules);

}  // namespace fathom::grammar
