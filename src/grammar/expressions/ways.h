#pragma once
// Ways: the ways through an expression of characters, free ones and look-around among them, before they are merged into
// a TextSet.
//
//   Ways ways(budget);
//   const int32_t start = ways.new_state(), end = ways.new_state();
//   if (ways.add(expression, start, end)) set = merged(ways, end, budget);       // text_set_of() in short
//
// Used by one thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"
#include "grammar/expressions/text_set.h"

namespace fathom::grammar {

class Ways {
 public:
  struct Edge {
    CodePointRange range;
    int32_t target;
  };
  // A free way where the condition holds.
  struct LookEdge {
    int32_t look, target;
  };
  struct Condition {
    TextSet set;      // of the text so far, or of the rest
    bool is_behind;   // about the text so far
    bool is_negated;  // only behind: the set of a negated look-ahead is made of what is left
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<int32_t> free;
    std::vector<LookEdge> looks;
  };

  explicit Ways(Budget& budget) : budget_(budget) {}

  // False: it has parts that are no characters, or is too large.
  bool add(const Expression& expression, int32_t from, int32_t to);
  int32_t new_state();
  const State& state(int32_t state) const { return states_[static_cast<size_t>(state)]; }
  const std::vector<Condition>& conditions() const { return conditions_; }
  std::vector<int32_t> closure(std::vector<int32_t> states) const;
  int64_t size() const { return static_cast<int64_t>(states_.size()); }

 private:
  static size_t idx(int32_t state) { return static_cast<size_t>(state); }
  void connect(int32_t from, int32_t to) { states_[idx(from)].free.push_back(to); }
  bool add_literal(const std::string& text, int32_t from, int32_t to);
  bool add_repeat(const Expression::Node& node, int32_t from, int32_t to);
  bool add_graph(const Expression::Node& node, int32_t from, int32_t to);
  bool add_look(const Expression::Node& node, int32_t from, int32_t to);

  Budget& budget_;
  std::vector<State> states_;
  std::vector<Condition> conditions_;
};

// The texts from state 0 to the end. For ways without look-around, and for any.
std::optional<TextSet> merged(const Ways& ways, int32_t end, Budget& budget);
std::optional<TextSet> merged_with_looks(const Ways& ways, int32_t end, Budget& budget);

// Adds an edge behind the others, as part of the last one where they go on together.
void append_edge(TextSet::State& state, const TextSet::Edge& edge);
// The same set without states that lead to no text.
TextSet without_dead_ends(TextSet set);

}  // namespace fathom::grammar
