#include "grammar/expressions/ways.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

using Kind = Expression::Node::Kind;

constexpr int kMaxWays = 4 * kMaxTextStates;

}  // namespace

bool Ways::add(const Expression& expression, int32_t from, int32_t to) {
  if (!budget_.charge(8) || states_.size() > kMaxWays) return false;
  const Expression::Node& node = expression.node();
  switch (node.kind) {
    case Kind::kLiteral:
      return add_literal(node.text, from, to);
    case Kind::kCharacter:
      budget_.charge(static_cast<int64_t>(node.ranges.size()));
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
    case Kind::kGraph:
      return add_graph(node, from, to);
    case Kind::kLook:
      return add_look(node, from, to);
    default:
      return false;
  }
}

int32_t Ways::new_state() {
  states_.emplace_back();
  budget_.charge_memory(sizeof(State));
  return static_cast<int32_t>(states_.size()) - 1;
}

std::vector<int32_t> Ways::closure(std::vector<int32_t> states) const {
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

bool Ways::add_literal(const std::string& text, int32_t from, int32_t to) {
  std::string_view rest = text;
  while (const std::optional<char32_t> c = take_utf8(rest)) {
    const int32_t next = new_state();
    states_[idx(from)].edges.push_back({{*c, *c}, next});
    from = next;
  }
  connect(from, to);
  return rest.empty();
}

bool Ways::add_repeat(const Expression::Node& node, int32_t from, int32_t to) {
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

bool Ways::add_graph(const Expression::Node& node, int32_t from, int32_t to) {
  const int32_t first = static_cast<int32_t>(states_.size());
  for (int i = 0; i < node.number; ++i) new_state();
  if (node.number == 0) return true;
  connect(from, first);
  for (size_t i = 0; i < node.parts.size(); ++i) {
    if (!add(node.parts[i], first + node.links[i].first, first + node.links[i].second))
      return false;
  }
  for (const int end : node.ends) connect(first + end, to);
  return true;
}

bool Ways::add_look(const Expression::Node& node, int32_t from, int32_t to) {
  const auto kind = static_cast<Look>(node.number);
  const bool is_behind = kind == Look::kBehind || kind == Look::kNotBehind;
  std::optional<TextSet> set = text_set_of(node.parts[0], budget_);
  if (set && kind == Look::kNotAhead)
    set = combined(all_texts(), *set, Combine::kOnlyFirst, budget_);
  if (!set) return false;
  states_[idx(from)].looks.push_back({static_cast<int32_t>(conditions_.size()), to});
  conditions_.push_back({std::move(*set), is_behind, kind == Look::kNotBehind});
  return true;
}

void append_edge(TextSet::State& state, const TextSet::Edge& edge) {
  if (!state.edges.empty() && state.edges.back().target == edge.target &&
      state.edges.back().last + 1 == edge.first) {
    state.edges.back().last = edge.last;
  } else {
    state.edges.push_back(edge);
  }
}

TextSet without_dead_ends(TextSet set) {
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
      for (const Ways::Edge& edge : ways.state(state).edges) {
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
      append_edge(result.states[i], {starts[k], starts[k + 1] - 1, target});
    }
  }
  return without_dead_ends(std::move(result));
}

std::optional<TextSet> text_set_of(const Expression& expression, Budget& budget) {
  Ways ways(budget);
  const int32_t start = ways.new_state(), end = ways.new_state();
  if (!ways.add(expression, start, end)) return std::nullopt;
  return ways.conditions().empty() ? merged(ways, end, budget)
                                   : merged_with_looks(ways, end, budget);
}

}  // namespace fathom::grammar
