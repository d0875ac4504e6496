#include "grammar/schema/json_space.h"

#include <optional>
#include <string>

#include "grammar/expressions/regex_parser.h"
#include "grammar/expressions/text_set.h"

namespace fathom::grammar {
namespace {

constexpr int kMaxSpaces = 32, kMaxTabs = 16;  // of an indentation

Expression usual_space() {
  const Expression indent =
      choice({repeat(literal(" "), 0, kMaxSpaces), repeat(literal("\t"), 1, kMaxTabs)});
  return optional(choice({literal(" "), sequence({literal("\n"), indent})}));
}

// What both the pattern and JSON call white space.
Expression space_of(const std::string& pattern, Budget& budget) {
  const auto set_of = [&](std::string_view text) {
    const Expression expression =
        parse_regex(text, {.generous = true, .name = "the pattern of white space"}, budget);
    return budget.ok() ? text_set_of(expression, budget) : std::nullopt;
  };
  const auto asked = set_of(pattern), json = set_of("[ \\t\\n\\r]*"), any = set_of("\\s*");
  if (!asked || !json || !any) {
    if (budget.ok()) budget.fail(invalid_argument("the pattern of white space is too large"));
    return literal("");
  }
  const auto others = combined(*asked, *any, Combine::kOnlyFirst, budget);
  const auto kept = combined(*asked, *json, Combine::kBoth, budget);
  if (!others || !kept) return literal("");
  if (!is_empty(*others) || is_empty(*kept)) {
    budget.fail(
        invalid_argument("the pattern of white space must match white space of JSON and no other "
                         "characters, got " +
                         pattern.substr(0, 64)));
    return literal("");
  }
  return lengths_of(*kept).longest == 0 ? literal("") : plain_text(*kept);
}

}  // namespace

Expression json_space(RuleSet& rules) {
  if (rules.json_space() == "") return literal("");
  if (rules.json().space < 0) {
    const Expression space =
        rules.json_space() ? space_of(*rules.json_space(), rules.budget()) : usual_space();
    rules.json().space = rules.add(space);
  }
  return rule(rules.json().space);
}

Expression json_colon(RuleSet& rules) {
  const Expression space = rules.json_space() ? json_space(rules) : optional(literal(" "));
  return sequence({space, literal(":"), space});
}

Expression json_comma(RuleSet& rules) {
  const Expression space = rules.json_space() ? json_space(rules) : optional(literal(" "));
  return sequence({space, literal(",")});
}

}  // namespace fathom::grammar
