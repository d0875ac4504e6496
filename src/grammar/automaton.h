#pragma once
// Automaton: the compiled form of a grammar. Every rule is a piece of a graph; a call edge pushes the state
// to return to, an accepting state returns.
//
//   for (const Automaton::ByteEdge& edge : automaton.byte_edges(state)) ...
//
// Immutable once built, thread-safe.

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::grammar {

struct Automaton {
  struct ByteEdge {
    uint8_t first, last;
    int32_t target;
  };
  struct CallEdge {
    int32_t rule, target;  // target: where to go on after the rule
  };
  struct TokenEdge {
    int32_t token, target;
  };
  struct State {
    int32_t byte_begin = 0, call_begin = 0, token_begin = 0, free_begin = 0;
    bool accepting = false;  // its rule may end here
    bool plain = false;      // no edges but byte edges, which exclude each other
    bool simple = false;     // the same, and not accepting
  };

  std::vector<State> states;  // one more than there are, as the end of the last
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
  std::vector<TokenEdge> tokens;
  std::vector<int32_t> frees;       // targets that are reached without reading
  std::vector<int32_t> rule_start;  // [rules]
  int32_t root_start = 0;

  int num_states() const { return static_cast<int>(states.size()) - 1; }
  int num_rules() const { return static_cast<int>(rule_start.size()); }
  const State& state(int32_t idx) const { return states[static_cast<size_t>(idx)]; }
  std::span<const ByteEdge> byte_edges(int32_t s) const {
    return part(bytes, state(s).byte_begin, state(s + 1).byte_begin);
  }
  std::span<const CallEdge> call_edges(int32_t s) const {
    return part(calls, state(s).call_begin, state(s + 1).call_begin);
  }
  std::span<const TokenEdge> token_edges(int32_t s) const {
    return part(tokens, state(s).token_begin, state(s + 1).token_begin);
  }
  std::span<const int32_t> free_edges(int32_t s) const {
    return part(frees, state(s).free_begin, state(s + 1).free_begin);
  }
  // REQUIRES: the state is plain. -1: the byte does not fit.
  int32_t plain_target(int32_t s, uint8_t byte) const {
    const std::span<const ByteEdge> edges = byte_edges(s);
    size_t begin = 0, count = edges.size();
    // The first edge that ends at the byte or behind it.
    while (count > 0) {
      const size_t half = count / 2;
      const bool is_before = edges[begin + half].last < byte;
      begin = is_before ? begin + half + 1 : begin;
      count = is_before ? count - half - 1 : half;
    }
    return begin < edges.size() && edges[begin].first <= byte ? edges[begin].target : -1;
  }
  int64_t memory_bytes() const {
    return static_cast<int64_t>(states.size() * sizeof(State) + bytes.size() * sizeof(ByteEdge) +
                                calls.size() * sizeof(CallEdge) +
                                tokens.size() * sizeof(TokenEdge) +
                                (frees.size() + rule_start.size()) * sizeof(int32_t));
  }

 private:
  template <class T>
  static std::span<const T> part(const std::vector<T>& all, int32_t begin, int32_t end) {
    return {all.data() + begin, static_cast<size_t>(end - begin)};
  }
};

}  // namespace fathom::grammar
