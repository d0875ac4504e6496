#include "grammar/state_classes.h"

#include <unordered_map>
#include <utility>

namespace fathom::grammar {
namespace {

using Signature = std::vector<int32_t>;

struct SignatureHash {
  size_t operator()(const Signature& signature) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int32_t part : signature) {
      hash = (hash ^ static_cast<uint32_t>(part)) * 0x100000001B3u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

// What a state does with the next byte, when states of one class are the same from then on. A called rule
// reads at least one byte before it returns (prune.cc). Free edges read nothing: they lead to the same state.
void describe(const Automaton& automaton, int32_t state, const std::vector<int32_t>& class_of,
              Signature& out) {
  const auto target_class = [&](int32_t target) { return class_of[static_cast<size_t>(target)]; };
  out.assign(1, automaton.state(state).accepting ? 1 : 0);
  const auto begin_part = [&](size_t size) { out.push_back(static_cast<int32_t>(size)); };
  begin_part(automaton.byte_edges(state).size());
  for (const Automaton::ByteEdge& edge : automaton.byte_edges(state)) {
    out.insert(out.end(), {edge.first * 256 + edge.last, target_class(edge.target)});
  }
  begin_part(automaton.call_edges(state).size());
  for (const Automaton::CallEdge& edge : automaton.call_edges(state)) {
    out.insert(out.end(), {edge.rule, target_class(edge.target)});
  }
  begin_part(automaton.token_edges(state).size());
  for (const Automaton::TokenEdge& edge : automaton.token_edges(state)) out.push_back(edge.token);
  const auto frees = automaton.free_edges(state);
  out.insert(out.end(), frees.begin(), frees.end());
}

}  // namespace

std::vector<int32_t> state_classes(const Automaton& automaton, int num_bytes, Budget& budget) {
  const auto num_states = static_cast<size_t>(automaton.num_states());
  // For no bytes at all: whether the rule may end.
  std::vector<int32_t> class_of(num_states), next(num_states);
  for (size_t i = 0; i < num_states; ++i) class_of[i] = automaton.states[i].accepting ? 1 : 0;
  budget.charge_memory(static_cast<int64_t>(num_states * 64));
  std::unordered_map<Signature, int32_t, SignatureHash> known;
  Signature signature;
  size_t num_classes = 0;
  for (int round = 0; round < num_bytes; ++round) {
    known.clear();
    for (size_t i = 0; i < num_states; ++i) {
      describe(automaton, static_cast<int32_t>(i), class_of, signature);
      if (!budget.charge(16 + 2 * static_cast<int64_t>(signature.size()))) return class_of;
      next[i] = known.try_emplace(signature, static_cast<int32_t>(known.size())).first->second;
    }
    std::swap(class_of, next);
    // Nothing was told apart that was not before: nothing ever will.
    if (known.size() == num_classes) break;
    num_classes = known.size();
  }
  return class_of;
}

}  // namespace fathom::grammar
