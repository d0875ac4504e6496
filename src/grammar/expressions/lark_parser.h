#pragma once
// Lark grammars as trees, before names mean anything.
//
//   LarkGrammar grammar;
//   parse_lark(text, grammar, budget);
//   for (const auto& [name, definition] : grammar.definitions) ...
//
// A mistake fails the budget. Plain data, pure functions.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"

namespace fathom::grammar {

struct LarkNode {
  enum class Kind : uint8_t {
    kName,      // text; parts = the arguments of a template
    kString,    // text, flags
    kRegexp,    // text, flags
    kRange,     // of characters: text = the first, flags = the last
    kToken,     // text, with its brackets
    kJson,      // text of a schema
    kSequence,  // parts
    kChoice,    // parts
    kRepeat,    // parts[0], min, max (kUnbounded)
  };
  Kind kind = Kind::kSequence;
  std::string text = {};
  std::string flags = {};
  std::vector<LarkNode> parts = {};
  int min = 1, max = 1;
  int line = 1;
};

struct LarkDefinition {
  std::vector<std::string> params;  // of a template
  LarkNode body;
  int line = 1;
};

struct LarkGrammar {
  std::map<std::string, LarkDefinition> definitions;  // of rules and terminals
  std::vector<LarkNode> ignored;
  std::set<std::string> declared;
};

void parse_lark(std::string_view text, LarkGrammar& grammar, Budget& budget);

// The terminals of the library `common`.
std::string_view lark_common_terminals();

}  // namespace fathom::grammar
