#include "grammar/endless_text.h"

#include <algorithm>
#include <span>

#include "grammar/vocabulary.h"

namespace fathom::grammar {
namespace {

// Each pass takes away states that lead to others that were taken away. Chains of them go in one pass or two, as
// passes go up and down; what takes more is given up.
constexpr int kMaxPasses = 8;
// What reads nothing is followed so far, and as many edges of a state.
constexpr int kMaxSilentSteps = 2;
constexpr size_t kMaxSilentEdges = 8;

template <class T>
std::span<const T> first_of(std::span<const T> edges) {
  return edges.first(std::min(edges.size(), kMaxSilentEdges));
}

}  // namespace

EndlessText::EndlessText(const Automaton& automaton)
    : automaton_(automaton), ranges_(utf8_ranges(plain_character_ranges())) {
  const auto num_states = static_cast<size_t>(automaton.num_states());
  goes_on_.assign(num_states, true);
  holds_.assign(num_states, false);
  for (const int32_t start : automaton.rule_start) {
    for (const Utf8Range& range : ranges_)
      rule_takes_.push_back(start >= 0 && takes(start, range, 0, /*ends_rule=*/true));
  }
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    bool has_changed = false;
    for (size_t i = 0; i < num_states; ++i) {
      const size_t state = pass % 2 == 0 ? num_states - 1 - i : i;
      if (!goes_on_[state] || goes_on(static_cast<int32_t>(state))) continue;
      goes_on_[state] = false;
      has_changed = true;
    }
    if (has_changed) continue;
    for (size_t state = 0; state < num_states; ++state)
      holds_[state] = comes_to(static_cast<int32_t>(state), kMaxSilentSteps);
    return;
  }
}

bool EndlessText::comes_to(int32_t state, int num_steps) const {
  if (goes_on_[static_cast<size_t>(state)]) return true;
  if (num_steps == 0) return false;
  for (const int32_t free : first_of(automaton_.free_edges(state))) {
    if (comes_to(free, num_steps - 1)) return true;
  }
  for (const Automaton::CallEdge& call : first_of(automaton_.call_edges(state))) {
    const int32_t start = automaton_.rule_start[static_cast<size_t>(call.rule)];
    if (start >= 0 && comes_to(start, num_steps - 1)) return true;
  }
  return false;
}

bool EndlessText::goes_on(int32_t state) const {
  const auto calls = first_of(automaton_.call_edges(state));
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const bool is_called = std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
      return comes_to(call.target, kMaxSilentSteps) && takes_in_rule(call.rule, i);
    });
    if (!is_called && !takes(state, ranges_[i], 0, /*ends_rule=*/false)) return false;
  }
  return true;
}

// Whether each character of the range, from its byte `at` on, is read by byte edges and leads to where plain text goes
// on, or to the end of the rule.
bool EndlessText::takes(int32_t state, const Utf8Range& characters, int at, bool ends_rule) const {
  const auto& bytes = characters.bytes[static_cast<size_t>(at)];
  int first_missing = bytes.first;
  for (const Automaton::ByteEdge& edge : automaton_.byte_edges(state)) {
    if (edge.last < bytes.first || edge.first > bytes.last) continue;
    if (edge.first > first_missing) return false;
    const bool is_last = at + 1 == characters.length;
    const bool leads_on = is_last ? (ends_rule ? automaton_.state(edge.target).accepting
                                               : comes_to(edge.target, kMaxSilentSteps))
                                  : takes(edge.target, characters, at + 1, ends_rule);
    if (!leads_on) return false;
    first_missing = std::max(first_missing, edge.last + 1);
  }
  return first_missing > bytes.last;
}

}  // namespace fathom::grammar
