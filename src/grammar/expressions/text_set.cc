#include "grammar/expressions/text_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/ways.h"

namespace fathom::grammar {
namespace {

constexpr char32_t kBeyond = kMaxCodePoint + 1;

const std::vector<CodePointRange>& all_characters() {
  static const std::vector<CodePointRange> all = {{0, 0xD7FF}, {0xE000, kMaxCodePoint}};
  return all;
}

}  // namespace

TextSet all_texts() { return set_of_lengths(0, kNoLimit); }

TextSet set_of_words(const std::vector<std::string>& words) {
  TextSet set;
  set.states.emplace_back();
  for (const std::string& word : words) {
    size_t at = 0;
    std::string_view rest = word;
    while (const std::optional<char32_t> c = take_utf8(rest)) {
      std::vector<TextSet::Edge>& edges = set.states[at].edges;
      const auto place =
          std::lower_bound(edges.begin(), edges.end(), *c,
                           [](const TextSet::Edge& edge, char32_t x) { return edge.first < x; });
      if (place != edges.end() && place->first == *c) {
        at = static_cast<size_t>(place->target);
        continue;
      }
      const auto next = static_cast<int32_t>(set.states.size());
      edges.insert(place, {*c, *c, next});
      set.states.emplace_back();
      at = static_cast<size_t>(next);
    }
    set.states[at].accepting = true;
  }
  return set;
}

TextSet set_of_lengths(int64_t min, int64_t max) {
  TextSet set;
  const int64_t last = max == kNoLimit ? min : max;
  for (int64_t length = 0; length <= last; ++length) {
    TextSet::State state;
    state.accepting = length >= min;
    const bool loops = length == last;
    if (!loops || max == kNoLimit) {
      for (const CodePointRange& range : all_characters()) {
        state.edges.push_back(
            {range.first, range.last, static_cast<int32_t>(loops ? length : length + 1)});
      }
    }
    set.states.push_back(std::move(state));
  }
  if (set.states.empty()) set.states.emplace_back();
  return set;
}

namespace {

constexpr int32_t kNowhere = -1;  // no text of the set begins like this

// The characters that two states tell apart, with where each goes.
template <class Visit>
void visit_together(const TextSet* a, const TextSet* b, std::pair<int32_t, int32_t> at,
                    const Visit& visit) {
  static const std::vector<TextSet::Edge> none;
  const auto edges_of = [](const TextSet* set, int32_t state) -> const std::vector<TextSet::Edge>& {
    return state == kNowhere ? none : set->states[static_cast<size_t>(state)].edges;
  };
  const std::vector<TextSet::Edge>&ours = edges_of(a, at.first), &theirs = edges_of(b, at.second);
  size_t i = 0, j = 0;
  char32_t from = 0;
  while (i < ours.size() || j < theirs.size()) {
    const char32_t our_first = i < ours.size() ? std::max(from, ours[i].first) : kBeyond;
    const char32_t their_first = j < theirs.size() ? std::max(from, theirs[j].first) : kBeyond;
    const char32_t first = std::min(our_first, their_first);
    const bool is_ours = our_first == first, is_theirs = their_first == first;
    const char32_t last = std::min(is_ours ? ours[i].last : our_first - 1,
                                   is_theirs ? theirs[j].last : their_first - 1);
    visit(first, last,
          std::pair(is_ours ? ours[i].target : kNowhere, is_theirs ? theirs[j].target : kNowhere));
    from = last + 1;
    if (is_ours && ours[i].last == last) ++i;
    if (is_theirs && theirs[j].last == last) ++j;
  }
}

}  // namespace

std::optional<TextSet> combined(const TextSet& a, const TextSet& b, Combine how, Budget& budget) {
  std::map<std::pair<int32_t, int32_t>, int32_t> known;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  TextSet result;
  const auto accepts = [](const TextSet& set, int32_t state) {
    return state != kNowhere && set.states[static_cast<size_t>(state)].accepting;
  };
  const auto state_of = [&](std::pair<int32_t, int32_t> pair) {
    const auto [entry, is_new] =
        known.try_emplace(pair, static_cast<int32_t>(result.states.size()));
    if (is_new) {
      const bool in_a = accepts(a, pair.first), in_b = accepts(b, pair.second);
      result.states.emplace_back().accepting = how == Combine::kBoth     ? in_a && in_b
                                               : how == Combine::kEither ? in_a || in_b
                                                                         : in_a && !in_b;
      pairs.push_back(pair);
    }
    return entry->second;
  };
  state_of({0, 0});
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (result.states.size() > kMaxTextStates || !budget.charge(64) || !budget.charge_memory(128))
      return std::nullopt;
    visit_together(&a, &b, pairs[i],
                   [&](char32_t first, char32_t last, std::pair<int32_t, int32_t> to) {
                     budget.charge(16);
                     const bool is_dead = (how != Combine::kEither && to.first == kNowhere) ||
                                          (how == Combine::kBoth && to.second == kNowhere);
                     if (is_dead) return;
                     const int32_t target = state_of(to);
                     append_edge(result.states[i], {first, last, target});
                   });
  }
  return without_dead_ends(std::move(result));
}

bool is_empty(const TextSet& set) {
  return std::none_of(set.states.begin(), set.states.end(),
                      [](const TextSet::State& state) { return state.accepting; });
}

bool holds(const TextSet& set, std::string_view text) {
  size_t at = 0;
  while (const std::optional<char32_t> c = take_utf8(text)) {
    const std::vector<TextSet::Edge>& edges = set.states[at].edges;
    const auto found =
        std::lower_bound(edges.begin(), edges.end(), *c,
                         [](const TextSet::Edge& edge, char32_t x) { return edge.last < x; });
    if (found == edges.end() || found->first > *c) return false;
    at = static_cast<size_t>(found->target);
  }
  return text.empty() && set.states[at].accepting;
}

TextLengths lengths_of(const TextSet& set) {
  const size_t size = set.states.size();
  std::vector<int64_t> shortest(size, -1), longest(size, 0);
  std::vector<int> num_sources(size, 0);
  std::vector<size_t> reached = {0};
  shortest[0] = 0;
  TextLengths lengths = {.shortest = -1, .longest = 0};
  for (size_t i = 0; i < reached.size(); ++i) {
    const TextSet::State& state = set.states[reached[i]];
    if (state.accepting && lengths.shortest < 0) lengths.shortest = shortest[reached[i]];
    for (const TextSet::Edge& edge : state.edges) {
      const auto target = static_cast<size_t>(edge.target);
      ++num_sources[target];
      if (shortest[target] >= 0) continue;
      shortest[target] = shortest[reached[i]] + 1;
      reached.push_back(target);
    }
  }
  // In an order in which sources come first; a loop never gets its turn.
  std::vector<size_t> order;
  if (num_sources[0] == 0) order.push_back(0);
  for (size_t i = 0; i < order.size(); ++i) {
    for (const TextSet::Edge& edge : set.states[order[i]].edges) {
      const auto target = static_cast<size_t>(edge.target);
      longest[target] = std::max(longest[target], longest[order[i]] + 1);
      if (--num_sources[target] == 0) order.push_back(target);
    }
    if (set.states[order[i]].accepting)
      lengths.longest = std::max(lengths.longest, longest[order[i]]);
  }
  if (order.size() < reached.size()) lengths.longest = kNoLimit;
  return lengths;
}

}  // namespace fathom::grammar
