#pragma once
// Network: the rules as graphs of states. An edge reads a byte, reads a special token, calls a rule, or
// reads nothing. The passes below clean it up; determinize() turns it into the final Automaton.
//
//   Network network = build_network(root, rules);
//   prune(network, budget);
//   Automaton automaton = determinize(network, budget);
//
// Plain data. A failed budget means that the result is incomplete and must be dropped.

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/expressions/budget.h"
#include "grammar/expressions/rule_set.h"

namespace fathom::grammar {

struct Network {
  struct Edge {
    enum class Kind : uint8_t { kNothing, kByte, kToken, kCall };
    Kind kind;
    uint8_t first = 0, last = 0;  // kByte
    int32_t label = 0;            // kToken: its id; kCall: the rule
    int32_t target = 0;
  };
  struct Rule {
    int32_t start = 0, end = 0;               // the rule is read once `end` is reached
    int32_t first_state = 0, last_state = 0;  // its states: [first_state, last_state)
  };
  std::vector<std::vector<Edge>> edges;  // [states]
  std::vector<Rule> rules;
  int32_t root = 0;  // the rule that the output follows
};

// Runs the front ends on the leaves that hold source text.
Network build_network(const Expression& root, RuleSet& rules);

// Removes what can never be finished (a rule without a finite text, a class without a character), so that
// every state left can reach its rule's end; fails when nothing is left. A call of a rule that may be empty
// gets an edge around it.
void prune(Network& network, Budget& budget);

// States of one rule are merged into sets, as far as that stays small; else the rule is taken as it is.
Automaton determinize(const Network& network, Budget& budget);

}  // namespace fathom::grammar
