#include <algorithm>
#include <bitset>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>

#include "grammar/network.h"

namespace fathom::grammar {
namespace {

using Edge = Network::Edge;
using StateSet = std::vector<int32_t>;

struct StateSetHash {
  size_t operator()(const StateSet& set) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int32_t state : set) {
      hash = (hash ^ static_cast<uint64_t>(state)) * 0x100000001B3u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

// A state of the automaton before it is packed.
struct Draft {
  std::vector<Automaton::ByteEdge> bytes;
  std::vector<Automaton::CallEdge> calls;
  std::vector<Automaton::TokenEdge> tokens;
  std::vector<int32_t> frees;
  bool accepting = false;

  bool has_edges() const {
    return !bytes.empty() || !calls.empty() || !tokens.empty() || !frees.empty();
  }
};

// Where the byte edges' ranges begin and end cuts the bytes into intervals that behave alike.
std::vector<int> interval_starts(const std::vector<const Edge*>& byte_edges) {
  std::bitset<257> is_start;
  for (const Edge* edge : byte_edges) {
    is_start.set(edge->first);
    is_start.set(static_cast<size_t>(edge->last) + 1);
  }
  std::vector<int> starts;
  starts.reserve(is_start.count());
  for (int byte = 0; byte <= 256; ++byte) {
    if (is_start[static_cast<size_t>(byte)]) starts.push_back(byte);
  }
  return starts;
}

class Determinizer {
 public:
  Determinizer(const Network& network, Budget& budget)
      : network_(network), budget_(budget), seen_(network.edges.size(), 0) {}

  Automaton run() {
    rule_start_.assign(network_.rules.size(), -1);
    reach_rule(network_.root);
    while (!pending_rules_.empty() && budget_.ok()) {
      const int32_t rule = pending_rules_.back();
      pending_rules_.pop_back();
      const size_t first_draft = drafts_.size();
      if (!merge_states(rule)) {
        drafts_.resize(first_draft);
        if (budget_.ok()) copy_states(rule);
      }
      rule_start_[static_cast<size_t>(rule)] = static_cast<int32_t>(first_draft);
      for (size_t i = first_draft; i < drafts_.size(); ++i) {
        for (const Automaton::CallEdge& call : drafts_[i].calls) reach_rule(call.rule);
      }
    }
    return budget_.ok() ? pack() : Automaton{};
  }

 private:
  void reach_rule(int32_t rule) {
    int32_t& start = rule_start_[static_cast<size_t>(rule)];
    if (start != -1) return;
    start = 0;  // known; its number comes when it is done
    pending_rules_.push_back(rule);
  }

  // All that is reached without reading, without the states that only pass on: sets that behave alike then
  // look alike. Valid until the next call.
  const StateSet& closure(std::span<const int32_t> from, int32_t rule_end) {
    ++epoch_;
    StateSet& closed = closed_;
    closed.clear();
    const auto visit = [&](int32_t state) {
      if (seen_[static_cast<size_t>(state)] == epoch_) return;
      seen_[static_cast<size_t>(state)] = epoch_;
      stack_.push_back(state);
    };
    for (const int32_t state : from) visit(state);
    while (!stack_.empty()) {
      const int32_t state = stack_.back();
      stack_.pop_back();
      bool reads = state == rule_end;
      for (const Edge& edge : network_.edges[static_cast<size_t>(state)]) {
        ++work_;
        if (edge.kind == Edge::Kind::kNothing) {
          visit(edge.target);
        } else {
          reads = true;
        }
      }
      if (reads) closed.push_back(state);
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }

  // False when the sets become too many or too large: the drafts made so far must be dropped.
  bool merge_states(int32_t rule_idx) {
    const Network::Rule& rule = network_.rules[static_cast<size_t>(rule_idx)];
    const int64_t num_states = rule.last_state - rule.first_state;
    const size_t max_sets = static_cast<size_t>(4 * num_states + 64);
    const int64_t max_work = work_ + 512 * num_states + 65536;
    sets_.clear();
    set_drafts_.clear();
    rule_end_ = rule.end;
    draft_of({&rule.start, 1});
    for (size_t i = 0; i < sets_.size(); ++i) {
      const int64_t before = work_;
      expand(sets_[i]->first, static_cast<size_t>(sets_[i]->second));
      if (!budget_.charge(8 * (work_ - before) + 32)) return false;
      if (sets_.size() > max_sets || work_ > max_work) return false;
    }
    return true;
  }

  int32_t draft_of(std::span<const int32_t> targets) {
    const auto [entry, is_new] =
        set_drafts_.try_emplace(closure(targets, rule_end_), static_cast<int32_t>(drafts_.size()));
    if (is_new) {
      sets_.push_back(&*entry);
      drafts_.emplace_back();
      budget_.charge_memory(static_cast<int64_t>(sizeof(Draft) + entry->first.size() * 4 + 64));
    }
    return entry->second;
  }

  void expand(const StateSet& set, size_t draft) {
    std::vector<const Edge*>& byte_edges = byte_edges_;
    byte_edges.clear();
    std::map<int32_t, StateSet> calls, tokens;
    for (const int32_t state : set) {
      if (state == rule_end_) drafts_[draft].accepting = true;
      for (const Edge& edge : network_.edges[static_cast<size_t>(state)]) {
        ++work_;
        if (edge.kind == Edge::Kind::kByte) byte_edges.push_back(&edge);
        if (edge.kind == Edge::Kind::kCall) calls[edge.label].push_back(edge.target);
        if (edge.kind == Edge::Kind::kToken) tokens[edge.label].push_back(edge.target);
      }
    }
    expand_bytes(byte_edges, draft);
    for (const auto& [label, targets] : calls) {
      const int32_t target = draft_of(targets);
      drafts_[draft].calls.push_back({label, target});
    }
    for (const auto& [label, targets] : tokens) {
      const int32_t target = draft_of(targets);
      drafts_[draft].tokens.push_back({label, target});
    }
    budget_.charge_memory(static_cast<int64_t>((calls.size() + tokens.size()) * 8));
  }

  void expand_bytes(const std::vector<const Edge*>& byte_edges, size_t draft) {
    if (byte_edges.empty()) return;
    if (byte_edges.size() == 1) {
      const Edge& only = *byte_edges.front();
      const int32_t target = draft_of({&only.target, 1});
      drafts_[draft].bytes.push_back({only.first, only.last, target});
      budget_.charge_memory(sizeof(Automaton::ByteEdge));
      ++work_;
      return;
    }
    const std::vector<int> starts = interval_starts(byte_edges);
    std::vector<StateSet> targets(starts.size());
    for (const Edge* edge : byte_edges) {
      auto at = static_cast<size_t>(
          std::lower_bound(starts.begin(), starts.end(), int{edge->first}) - starts.begin());
      for (; at < starts.size() && starts[at] <= edge->last; ++at, ++work_) {
        targets[at].push_back(edge->target);
      }
    }
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      if (targets[i].empty()) continue;
      const int32_t target = draft_of(targets[i]);
      std::vector<Automaton::ByteEdge>& out = drafts_[draft].bytes;
      const auto last = static_cast<uint8_t>(starts[i + 1] - 1);
      if (!out.empty() && out.back().target == target && out.back().last + 1 == starts[i]) {
        out.back().last = last;
      } else {
        out.push_back({static_cast<uint8_t>(starts[i]), last, target});
        budget_.charge_memory(sizeof(Automaton::ByteEdge));
      }
    }
  }

  void copy_states(int32_t rule_idx) {
    const Network::Rule& rule = network_.rules[static_cast<size_t>(rule_idx)];
    // The start state is the rule's first (build_network.cc), as its draft must be.
    const auto shift = static_cast<int32_t>(drafts_.size()) - rule.first_state;
    for (int32_t state = rule.first_state; state < rule.last_state; ++state) {
      Draft draft;
      draft.accepting = state == rule.end;
      for (const Edge& edge : network_.edges[static_cast<size_t>(state)]) {
        const int32_t target = edge.target + shift;
        if (edge.kind == Edge::Kind::kNothing) draft.frees.push_back(target);
        if (edge.kind == Edge::Kind::kByte) draft.bytes.push_back({edge.first, edge.last, target});
        if (edge.kind == Edge::Kind::kCall) draft.calls.push_back({edge.label, target});
        if (edge.kind == Edge::Kind::kToken) draft.tokens.push_back({edge.label, target});
      }
      std::sort(draft.bytes.begin(), draft.bytes.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      if (!budget_.charge(32 + 4 * static_cast<int64_t>(draft.bytes.size()))) return;
      budget_.charge_memory(static_cast<int64_t>(sizeof(Draft) + draft.bytes.size() * 12 +
                                                 draft.calls.size() * 8 + draft.frees.size() * 4));
      drafts_.push_back(std::move(draft));
    }
  }

  Automaton pack() const {
    Automaton automaton;
    automaton.rule_start = rule_start_;
    automaton.root_start = rule_start_[static_cast<size_t>(network_.root)];
    const auto size = [](const auto& all) { return static_cast<int32_t>(all.size()); };
    for (const Draft& draft : drafts_) {
      Automaton::State state = {.byte_begin = size(automaton.bytes),
                                .call_begin = size(automaton.calls),
                                .token_begin = size(automaton.tokens),
                                .free_begin = size(automaton.frees),
                                .accepting = draft.accepting};
      automaton.bytes.insert(automaton.bytes.end(), draft.bytes.begin(), draft.bytes.end());
      automaton.tokens.insert(automaton.tokens.end(), draft.tokens.begin(), draft.tokens.end());
      automaton.frees.insert(automaton.frees.end(), draft.frees.begin(), draft.frees.end());
      for (const Automaton::CallEdge& call : draft.calls) {
        const Draft& target = drafts_[static_cast<size_t>(call.target)];
        if (target.accepting && !target.has_edges()) {
          // A call in last place returns where its caller does: no need to push.
          automaton.frees.push_back(rule_start_[static_cast<size_t>(call.rule)]);
        } else {
          automaton.calls.push_back(call);
        }
      }
      const auto overlaps = [](const auto& a, const auto& b) { return a.last >= b.first; };
      state.plain =
          draft.calls.empty() && draft.tokens.empty() && draft.frees.empty() &&
          std::adjacent_find(draft.bytes.begin(), draft.bytes.end(), overlaps) == draft.bytes.end();
      state.simple = state.plain && !draft.accepting;
      automaton.states.push_back(state);
    }
    automaton.states.push_back({.byte_begin = size(automaton.bytes),
                                .call_begin = size(automaton.calls),
                                .token_begin = size(automaton.tokens),
                                .free_begin = size(automaton.frees)});
    return automaton;
  }

  const Network& network_;
  Budget& budget_;
  std::vector<uint32_t> seen_;  // [states] epoch of the last visit
  uint32_t epoch_ = 0;
  int64_t work_ = 0;
  int32_t rule_end_ = 0;
  std::vector<Draft> drafts_;
  std::vector<int32_t> rule_start_;  // [rules] -1: not reached
  std::vector<int32_t> pending_rules_;
  using SetDrafts = std::unordered_map<StateSet, int32_t, StateSetHash>;
  SetDrafts set_drafts_;                            // of the rule at hand
  std::vector<const SetDrafts::value_type*> sets_;  // in the order of their drafts
  StateSet closed_, stack_;                         // of closure()
  std::vector<const Edge*> byte_edges_;             // of expand()
};

}  // namespace

Automaton determinize(const Network& network, Budget& budget) {
  return Determinizer(network, budget).run();
}

}  // namespace fathom::grammar
