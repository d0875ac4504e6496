#pragma once
// Which states look alike for a few bytes: they take the same texts of up to that length, and their rules may
// end after the same ones. A string that may have 5 more characters differs from one that may have 500 only
// for tokens of more than 5 bytes.
//
//   automaton.class_of = state_classes(automaton, kMaxShortTokenBytes, budget);
//
// Pure function, thread-safe. Charges the budget; once that has failed the result means nothing.

#include <cstdint>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/budget.h"

namespace fathom::grammar {

// [states] States of one class look alike for `num_bytes` bytes; others may as well.
std::vector<int32_t> state_classes(const Automaton& automaton, int num_bytes, Budget& budget);

}  // namespace fathom::grammar
