#pragma once
// A set of texts as what stands in a JSON string, without its quotes.
//
//   Expression name = sequence({literal("\""), json_text(names, rules), literal("\"")});
//
// One way to write each text, but that of a text whose further characters are free. Used by one thread.

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"
#include "grammar/expressions/text_set.h"

namespace fathom::grammar {

Expression json_text(const TextSet& set, RuleSet& rules);

}  // namespace fathom::grammar
