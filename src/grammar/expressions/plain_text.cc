// Sets of texts as expressions.

#include <utility>

#include "grammar/expressions/text_set.h"

namespace fathom::grammar {

std::map<int32_t, std::vector<CodePointRange>> ranges_by_target(const TextSet::State& state) {
  std::map<int32_t, std::vector<CodePointRange>> ranges;
  for (const TextSet::Edge& edge : state.edges)
    ranges[edge.target].push_back({edge.first, edge.last});
  return ranges;
}

TextSet without_longer(TextSet set) {
  for (TextSet::State& state : set.states) {
    if (state.accepting) state.edges.clear();
  }
  return set;
}

Expression plain_text(const TextSet& set) {
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  for (size_t i = 0; i < set.states.size(); ++i) {
    if (set.states[i].accepting) ends.push_back(static_cast<int>(i));
    for (const auto& [target, ranges] : ranges_by_target(set.states[i])) {
      edges.push_back({static_cast<int>(i), target, character(ranges)});
    }
  }
  return graph(std::move(edges), std::move(ends), static_cast<int>(set.states.size()));
}

}  // namespace fathom::grammar
