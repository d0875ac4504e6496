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
// Rules that take a character together are looked at in so many steps.
constexpr int64_t kMaxTogetherSteps = 20'000;

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

bool EndlessText::goes_on(int32_t state) {
  std::vector<int32_t> called;
  for (const Automaton::CallEdge& call : first_of(automaton_.call_edges(state))) {
    const bool may_take = automaton_.rule_start[static_cast<size_t>(call.rule)] >= 0;
    if (may_take && comes_to(call.target, kMaxSilentSteps)) called.push_back(call.rule);
  }
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const bool is_called = std::any_of(called.begin(), called.end(),
                                       [&](int32_t rule) { return takes_in_rule(rule, i); });
    if (!is_called && !takes(state, ranges_[i], 0, /*ends_rule=*/false) &&
        !take_together(called, i))
      return false;
  }
  return true;
}

// Whether each character of the range is a text of one of the rules: of letters, say, and of what is none.
bool EndlessText::take_together(const std::vector<int32_t>& rules, size_t range) {
  if (rules.size() < 2) return false;
  std::vector<int32_t> starts;
  for (const int32_t rule : rules)
    starts.push_back(automaton_.rule_start[static_cast<size_t>(rule)]);
  std::sort(starts.begin(), starts.end());
  const auto [known, is_new] = together_.try_emplace({starts, range}, false);
  if (is_new) {
    int64_t steps_left = kMaxTogetherSteps;
    known->second = take_together(starts, ranges_[range], 0, steps_left);
  }
  return known->second;
}

bool EndlessText::take_together(const std::vector<int32_t>& states, const Utf8Range& characters,
                                int at, int64_t& steps_left) const {
  const auto& bytes = characters.bytes[static_cast<size_t>(at)];
  std::vector<int32_t> targets;
  for (int byte = bytes.first; byte <= bytes.last;) {
    targets.clear();
    int last = bytes.last;  // of the bytes that lead where this one does
    for (const int32_t state : states) {
      for (const Automaton::ByteEdge& edge : automaton_.byte_edges(state)) {
        if (--steps_left < 0) return false;
        if (edge.first > byte) last = std::min(last, edge.first - 1);
        if (edge.first > byte || edge.last < byte) continue;
        last = std::min(last, int{edge.last});
        targets.push_back(edge.target);
      }
    }
    const bool fits =
        at + 1 < characters.length
            ? !targets.empty() && take_together(targets, characters, at + 1, steps_left)
            : std::any_of(targets.begin(), targets.end(),
                          [this](int32_t target) { return automaton_.state(target).accepting; });
    if (!fits) return false;
    byte = last + 1;
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
