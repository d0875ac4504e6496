#include "grammar/schema/text_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

using Kind = Expression::Node::Kind;

constexpr char32_t kBeyond = kMaxCodePoint + 1;
constexpr int kMaxWays = 4 * kMaxTextStates;

const std::vector<CodePointRange>& all_characters() {
  static const std::vector<CodePointRange> all = {{0, 0xD7FF}, {0xE000, kMaxCodePoint}};
  return all;
}

// Adds an edge behind the others, as part of the last one where they go on together.
void add_edge(TextSet::State& state, const TextSet::Edge& edge) {
  if (!state.edges.empty() && state.edges.back().target == edge.target &&
      state.edges.back().last + 1 == edge.first) {
    state.edges.back().last = edge.last;
  } else {
    state.edges.push_back(edge);
  }
}

// Ways of an expression, with free ones, before they are merged.
class Ways {
 public:
  struct Edge {
    CodePointRange range;
    int32_t target;
  };
  explicit Ways(Budget& budget) : budget_(budget) {}

  // False: it has parts that are no characters, or is too large.
  bool add(const Expression& expression, int32_t from, int32_t to) {
    if (!budget_.charge(8) || states_.size() > kMaxWays) return false;
    const Expression::Node& node = expression.node();
    switch (node.kind) {
      case Kind::kLiteral:
        return add_literal(node.text, from, to);
      case Kind::kCharacter:
        for (const CodePointRange& range : node.ranges)
          states_[idx(from)].edges.push_back({range, to});
        return true;
      case Kind::kSequence:
        for (const Expression& part : node.parts) {
          const int32_t next = new_state();
          if (!add(part, from, next)) return false;
          from = next;
        }
        connect(from, to);
        return true;
      case Kind::kChoice:
        return std::all_of(node.parts.begin(), node.parts.end(),
                           [&](const Expression& part) { return add(part, from, to); });
      case Kind::kRepeat:
        return add_repeat(node, from, to);
      default:
        return false;
    }
  }

  int32_t new_state() {
    states_.emplace_back();
    return static_cast<int32_t>(states_.size()) - 1;
  }
  const std::vector<Edge>& edges(int32_t state) const { return states_[idx(state)].edges; }

  std::vector<int32_t> closure(std::vector<int32_t> states) const {
    std::vector<bool> seen(states_.size(), false);
    std::vector<int32_t> closed;
    while (!states.empty()) {
      const int32_t state = states.back();
      states.pop_back();
      if (seen[idx(state)]) continue;
      seen[idx(state)] = true;
      closed.push_back(state);
      const std::vector<int32_t>& free = states_[idx(state)].free;
      states.insert(states.end(), free.begin(), free.end());
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }
  int64_t size() const { return static_cast<int64_t>(states_.size()); }

 private:
  struct State {
    std::vector<Edge> edges;
    std::vector<int32_t> free;
  };
  static size_t idx(int32_t state) { return static_cast<size_t>(state); }
  void connect(int32_t from, int32_t to) { states_[idx(from)].free.push_back(to); }

  bool add_literal(const std::string& text, int32_t from, int32_t to) {
    std::string_view rest = text;
    while (const std::optional<char32_t> c = take_utf8(rest)) {
      const int32_t next = new_state();
      states_[idx(from)].edges.push_back({{*c, *c}, next});
      from = next;
    }
    connect(from, to);
    return rest.empty();
  }

  bool add_repeat(const Expression::Node& node, int32_t from, int32_t to) {
    const Expression& part = node.parts[0];
    for (int i = 0; i < node.min; ++i) {
      const int32_t next = new_state();
      if (!add(part, from, next)) return false;
      from = next;
    }
    if (node.max == kUnbounded) {
      const int32_t loop = new_state(), again = new_state();
      connect(from, loop);
      if (!add(part, loop, again)) return false;
      connect(again, loop);
      connect(loop, to);
      return true;
    }
    for (int i = node.min; i < node.max; ++i) {
      const int32_t begin = new_state(), next = new_state();
      connect(from, to);
      connect(from, begin);
      if (!add(part, begin, next)) return false;
      from = next;
    }
    connect(from, to);
    return true;
  }

  Budget& budget_;
  std::vector<State> states_;
};

// The same set without states that lead to no text.
TextSet trimmed(TextSet set) {
  const size_t size = set.states.size();
  std::vector<std::vector<int32_t>> sources(size);
  std::vector<int32_t> pending;
  std::vector<bool> live(size, false);
  for (size_t i = 0; i < size; ++i) {
    for (const TextSet::Edge& edge : set.states[i].edges) {
      sources[static_cast<size_t>(edge.target)].push_back(static_cast<int32_t>(i));
    }
    if (!set.states[i].accepting) continue;
    live[i] = true;
    pending.push_back(static_cast<int32_t>(i));
  }
  while (!pending.empty()) {
    const auto state = static_cast<size_t>(pending.back());
    pending.pop_back();
    for (const int32_t source : sources[state]) {
      if (live[static_cast<size_t>(source)]) continue;
      live[static_cast<size_t>(source)] = true;
      pending.push_back(source);
    }
  }
  std::vector<int32_t> number(size, -1);
  TextSet result;
  for (size_t i = 0; i < size; ++i) {
    if (!live[i] && i > 0) continue;
    number[i] = static_cast<int32_t>(result.states.size());
    result.states.push_back(std::move(set.states[i]));
  }
  for (TextSet::State& state : result.states) {
    std::vector<TextSet::Edge> kept;
    for (const TextSet::Edge& edge : state.edges) {
      if (!live[static_cast<size_t>(edge.target)]) continue;
      kept.push_back({edge.first, edge.last, number[static_cast<size_t>(edge.target)]});
    }
    state.edges = std::move(kept);
  }
  return result;
}

// A set of ways that begin alike becomes one state.
std::optional<TextSet> merged(const Ways& ways, int32_t end, Budget& budget) {
  std::map<std::vector<int32_t>, int32_t> known;
  std::vector<std::vector<int32_t>> sets;
  TextSet result;
  const auto state_of = [&](std::vector<int32_t> from) {
    std::vector<int32_t> set = ways.closure(std::move(from));
    const auto [entry, is_new] = known.try_emplace(set, static_cast<int32_t>(result.states.size()));
    if (is_new) {
      result.states.emplace_back().accepting = std::binary_search(set.begin(), set.end(), end);
      budget.charge_memory(static_cast<int64_t>(set.size()) * 12 + 96);
      sets.push_back(std::move(set));
    }
    return entry->second;
  };
  state_of({0});
  for (size_t i = 0; i < sets.size(); ++i) {
    if (result.states.size() > kMaxTextStates || !budget.charge(ways.size() / 4 + 64))
      return std::nullopt;
    std::vector<Ways::Edge> edges;
    std::vector<char32_t> starts;
    for (const int32_t state : sets[i]) {
      for (const Ways::Edge& edge : ways.edges(state)) {
        edges.push_back(edge);
        starts.push_back(edge.range.first);
        starts.push_back(edge.range.last + 1);
      }
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    if (!budget.charge(static_cast<int64_t>(starts.size() * edges.size()))) return std::nullopt;
    for (size_t k = 0; k + 1 < starts.size(); ++k) {
      std::vector<int32_t> targets;
      for (const Ways::Edge& edge : edges) {
        if (edge.range.first <= starts[k] && starts[k] <= edge.range.last)
          targets.push_back(edge.target);
      }
      if (targets.empty()) continue;
      const int32_t target = state_of(std::move(targets));
      add_edge(result.states[i], {starts[k], starts[k + 1] - 1, target});
    }
  }
  return trimmed(std::move(result));
}

}  // namespace

std::optional<TextSet> text_set_of(const Expression& expression, Budget& budget) {
  Ways ways(budget);
  const int32_t start = ways.new_state(), end = ways.new_state();
  if (!ways.add(expression, start, end)) return std::nullopt;
  return merged(ways, end, budget);
}

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
                     add_edge(result.states[i], {first, last, target});
                   });
  }
  return trimmed(std::move(result));
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
