#pragma once
// EndlessText: the states of an automaton from which plain text (grammar/vocabulary.h) goes on whatever its
// characters are and however many there are. So are places in a string, in a name that is none of some names, and so
// on: each takes all plain tokens, and that is known without looking at what every character leads to.
//
//   const EndlessText endless(automaton);
//   if (endless.holds(item.state)) ...           // every plain token fits
//
// A lower bound: texts that come and go between rules are not followed. Immutable; the automaton must outlive it.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/expressions/code_points.h"

namespace fathom::grammar {

class EndlessText {
 public:
  explicit EndlessText(const Automaton& automaton);
  bool holds(int32_t state) const { return holds_[static_cast<size_t>(state)]; }

 private:
  // By characters that its own edges read, or those of rules of one character.
  bool goes_on(int32_t state);
  // That, or without reading it comes to such a state, in few steps: round in a circle nothing is read.
  bool comes_to(int32_t state, int num_steps) const;
  bool takes(int32_t state, const Utf8Range& characters, int at, bool ends_rule) const;
  bool takes_in_rule(int32_t rule, size_t range) const {
    return rule_takes_[static_cast<size_t>(rule) * ranges_.size() + range];
  }

  bool take_together(const std::vector<int32_t>& rules, size_t range);
  bool take_together(const std::vector<int32_t>& states, const Utf8Range& characters, int at,
                     int64_t& steps_left) const;

  const Automaton& automaton_;
  // By starts of rules and range: whether they take each of its characters together.
  std::map<std::pair<std::vector<int32_t>, size_t>, bool> together_;
  std::vector<Utf8Range> ranges_;  // of plain characters
  std::vector<bool>
      rule_takes_;  // [rules, ranges] one character of the range, whichever, is a text of the rule
  std::vector<bool> goes_on_;  // [states]
  std::vector<bool> holds_;    // [states] comes_to()
};

}  // namespace fathom::grammar
