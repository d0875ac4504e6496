#include <algorithm>
#include <utility>

#include "grammar/network.h"

namespace fathom::grammar {
namespace {

using Edge = Network::Edge;

// Edges by what they lead to, and call edges by what they call.
struct Incoming {
  struct Call {
    int32_t source, target;
  };
  std::vector<std::vector<int32_t>> sources;     // [states] of the edges that are no calls
  std::vector<std::vector<Call>> calls_of_rule;  // [rules]
  std::vector<std::vector<std::pair<int32_t, int32_t>>> calls_into;  // [states] (source, rule)
};

Incoming incoming_edges(const Network& network, Budget& budget) {
  Incoming incoming;
  incoming.sources.resize(network.edges.size());
  incoming.calls_into.resize(network.edges.size());
  incoming.calls_of_rule.resize(network.rules.size());
  for (size_t state = 0; state < network.edges.size(); ++state) {
    for (const Edge& edge : network.edges[state]) {
      if (!budget.charge(2)) return incoming;
      const auto source = static_cast<int32_t>(state);
      if (edge.kind == Edge::Kind::kCall) {
        incoming.calls_of_rule[static_cast<size_t>(edge.label)].push_back({source, edge.target});
        incoming.calls_into[static_cast<size_t>(edge.target)].emplace_back(source, edge.label);
      } else {
        incoming.sources[static_cast<size_t>(edge.target)].push_back(source);
      }
    }
  }
  return incoming;
}

std::vector<int32_t> rule_of_start(const Network& network) {
  std::vector<int32_t> rule(network.edges.size(), -1);
  for (size_t idx = 0; idx < network.rules.size(); ++idx) {
    rule[static_cast<size_t>(network.rules[idx].start)] = static_cast<int32_t>(idx);
  }
  return rule;
}

// Which states can reach their rule's end, by rules that can be finished.
std::vector<bool> finishable_states(const Network& network, Budget& budget) {
  const Incoming incoming = incoming_edges(network, budget);
  const std::vector<int32_t> rule_of = rule_of_start(network);
  std::vector<bool> live(network.edges.size(), false), rule_live(network.rules.size(), false);
  std::vector<int32_t> pending;
  const auto mark = [&](int32_t state) {
    if (live[static_cast<size_t>(state)]) return;
    live[static_cast<size_t>(state)] = true;
    pending.push_back(state);
  };
  for (const Network::Rule& rule : network.rules) mark(rule.end);
  while (!pending.empty() && budget.charge(4)) {
    const int32_t state = pending.back();
    pending.pop_back();
    for (const int32_t source : incoming.sources[static_cast<size_t>(state)]) mark(source);
    for (const auto& [source, rule] : incoming.calls_into[static_cast<size_t>(state)]) {
      if (rule_live[static_cast<size_t>(rule)]) mark(source);
    }
    const int32_t rule = rule_of[static_cast<size_t>(state)];
    if (rule < 0) continue;
    rule_live[static_cast<size_t>(rule)] = true;
    for (const Incoming::Call& call : incoming.calls_of_rule[static_cast<size_t>(rule)]) {
      if (live[static_cast<size_t>(call.target)]) mark(call.source);
    }
  }
  return live;
}

void remove_dead_edges(Network& network, const std::vector<bool>& live, Budget& budget) {
  for (std::vector<Edge>& edges : network.edges) {
    if (!budget.charge(static_cast<int64_t>(edges.size()) + 1)) return;
    const auto is_dead = [&](const Edge& edge) {
      if (!live[static_cast<size_t>(edge.target)]) return true;
      return edge.kind == Edge::Kind::kCall &&
             !live[static_cast<size_t>(network.rules[static_cast<size_t>(edge.label)].start)];
    };
    edges.erase(std::remove_if(edges.begin(), edges.end(), is_dead), edges.end());
  }
}

// Edges around the calls of rules that may read nothing.
void bypass_empty_rules(Network& network, Budget& budget) {
  std::vector<bool> reached(network.edges.size(), false), may_be_empty(network.rules.size(), false);
  std::vector<int32_t> rule_of_end(network.edges.size(), -1);
  std::vector<std::vector<Incoming::Call>> waiting(network.rules.size());
  std::vector<Incoming::Call> bypasses;
  std::vector<int32_t> pending;
  const auto mark = [&](int32_t state) {
    if (reached[static_cast<size_t>(state)]) return;
    reached[static_cast<size_t>(state)] = true;
    pending.push_back(state);
  };
  for (size_t idx = 0; idx < network.rules.size(); ++idx) {
    rule_of_end[static_cast<size_t>(network.rules[idx].end)] = static_cast<int32_t>(idx);
    mark(network.rules[idx].start);
  }
  while (!pending.empty() && budget.charge(4)) {
    const int32_t state = pending.back();
    pending.pop_back();
    for (const Edge& edge : network.edges[static_cast<size_t>(state)]) {
      if (edge.kind == Edge::Kind::kNothing) mark(edge.target);
      if (edge.kind != Edge::Kind::kCall) continue;
      if (may_be_empty[static_cast<size_t>(edge.label)]) mark(edge.target);
      waiting[static_cast<size_t>(edge.label)].push_back({state, edge.target});
    }
    const int32_t rule = rule_of_end[static_cast<size_t>(state)];
    if (rule < 0) continue;
    may_be_empty[static_cast<size_t>(rule)] = true;
    for (const Incoming::Call& call : waiting[static_cast<size_t>(rule)]) mark(call.target);
  }
  for (size_t state = 0; state < network.edges.size(); ++state) {
    for (const Edge& edge : network.edges[state]) {
      if (edge.kind == Edge::Kind::kCall && may_be_empty[static_cast<size_t>(edge.label)]) {
        bypasses.push_back({static_cast<int32_t>(state), edge.target});
      }
    }
  }
  for (const Incoming::Call& call : bypasses) {
    network.edges[static_cast<size_t>(call.source)].push_back(
        {.kind = Edge::Kind::kNothing, .target = call.target});
  }
}

}  // namespace

void prune(Network& network, Budget& budget) {
  const std::vector<bool> live = finishable_states(network, budget);
  if (!budget.ok()) return;
  const int32_t start = network.rules[static_cast<size_t>(network.root)].start;
  if (!live[static_cast<size_t>(start)]) {
    budget.fail(
        invalid_argument("no finite text satisfies the grammar: every way through it goes on "
                         "forever or is impossible"));
    return;
  }
  remove_dead_edges(network, live, budget);
  bypass_empty_rules(network, budget);
}

}  // namespace fathom::grammar
