#pragma once
// The automaton of an expression, as compile() makes it.

#include "base/check.h"
#include "grammar/network.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {

inline Automaton automaton_of(const Expression& expression) {
  const Limits limits;
  Budget budget(limits);
  RuleSet rules(budget);
  Network network = build_network(expression, rules);
  if (budget.ok()) prune(network, budget);
  FATHOM_CHECK(budget.ok(), budget.error().message);
  return determinize(network, budget);
}

}  // namespace fathom::grammar::tests
