#pragma once
// The pieces that JSON texts are made of: strings, numbers, any value.
//
//   Expression pair = sequence({literal("\"age\""), json_colon(rules), json_integer(rules)});
//
// Numbers are bounded: every double, however it is written; integers of 64 bits, with a sign or without.
//
// The functions that take a RuleSet share the rules they make.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"
#include "grammar/schema/schema_facts.h"

namespace fathom::grammar {

// What an integer of 64 bits may be: from the least with a sign to the largest without.
constexpr NumberUnits kLeastInteger = NumberUnits{std::numeric_limits<int64_t>::min()};
constexpr NumberUnits kMostInteger = NumberUnits{std::numeric_limits<uint64_t>::max()};
constexpr int kMaxAnyDepth = 32;  // of values without a schema

std::string json_quoted(std::string_view text);

Expression json_string(RuleSet& rules);
// What stands between the quotes; one character beyond ASCII; one that is written as an escape, in one way each.
Expression json_string_content(RuleSet& rules);
Expression json_wide_character(RuleSet& rules);
Expression json_escape(RuleSet& rules);
// With a bounded number of characters: a call of one rule for each.
Expression json_string(int min_characters, int max_characters, RuleSet& rules);
Expression json_number(RuleSet& rules);
Expression json_magnitude(RuleSet& rules);  // a number without its sign
Expression json_integer(RuleSet& rules);
Expression json_any_value(RuleSet& rules);
Expression json_any_object(RuleSet& rules);
Expression json_any_array(RuleSet& rules);

// Decimal numbers between the bounds, which are counted in units of 10^-num_decimals; at most num_decimals
// decimals and 20 digits before them are written, no exponent and no minus zero. REQUIRES: min <= max.
Expression json_decimals_between(NumberUnits min, NumberUnits max, int num_decimals);

}  // namespace fathom::grammar
