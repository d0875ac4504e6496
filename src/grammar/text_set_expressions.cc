#include <map>
#include <utility>

#include "grammar/code_points.h"
#include "grammar/json_values.h"
#include "grammar/regex_parser.h"
#include "grammar/text_set.h"

namespace fathom::grammar {
namespace {

constexpr char32_t kLastAscii = 0x7F;

using Ranges = std::vector<CodePointRange>;

std::map<int32_t, Ranges> ranges_by_target(const TextSet::State& state) {
  std::map<int32_t, Ranges> ranges;
  for (const TextSet::Edge& edge : state.edges)
    ranges[edge.target].push_back({edge.first, edge.last});
  return ranges;
}

bool is_everything(const Ranges& ranges) {
  return ranges.size() == 2 && ranges[0].first == 0 && ranges[0].last == 0xD7FF &&
         ranges[1].first == 0xE000 && ranges[1].last == kMaxCodePoint;
}

// What follows does not matter.
bool is_free(const TextSet& set, size_t state) {
  if (!set.states[state].accepting) return false;
  const auto ranges = ranges_by_target(set.states[state]);
  return ranges.size() == 1 && ranges.begin()->first == static_cast<int32_t>(state) &&
         is_everything(ranges.begin()->second);
}

// Characters beyond ASCII are a call of a rule: their UTF-8 forms take a dozen states, and many edges have the same.
class WideCharacters {
 public:
  explicit WideCharacters(RuleSet& rules) : rules_(rules) {}

  Expression label(const Ranges& ranges) {
    const Ranges ascii = intersection(ranges, {{0, kLastAscii}}),
                 wide = intersection(ranges, {{kLastAscii + 1, kMaxCodePoint}});
    if (wide.empty()) return json_string_character(ascii);
    const Expression beyond = wide_label(wide);
    return ascii.empty() ? beyond : choice({json_string_character(ascii), beyond});
  }

 private:
  Expression wide_label(const Ranges& wide) {
    if (wide.size() == 1 && wide[0].last - wide[0].first < 64) return character(wide);
    static const Ranges all = complement({{0, kLastAscii}});
    std::vector<std::pair<char32_t, char32_t>> key;
    for (const CodePointRange& range : wide) key.emplace_back(range.first, range.last);
    const auto [known, is_new] = rule_of_.try_emplace(key, -1);
    if (is_new) {
      const bool is_all = wide.size() == all.size() && wide[0].first == all[0].first &&
                          wide[0].last == all[0].last && wide.back().last == all.back().last;
      if (is_all) return known->second = json_wide_character(rules_)->number, rule(known->second);
      known->second = rules_.add(character(wide));
    }
    return rule(known->second);
  }

  RuleSet& rules_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, int> rule_of_;
};

}  // namespace

Expression json_text(const TextSet& set, RuleSet& rules) {
  WideCharacters characters(rules);
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  const auto last = static_cast<int>(set.states.size());
  bool has_free = false;
  for (size_t i = 0; i < set.states.size() && rules.budget().charge(32); ++i) {
    const auto from = static_cast<int>(i);
    if (is_free(set, i)) {
      edges.push_back({from, last, json_string_content(rules)});
      has_free = true;
      continue;
    }
    if (set.states[i].accepting) ends.push_back(from);
    for (const auto& [target, ranges] : ranges_by_target(set.states[i])) {
      edges.push_back({from, target, characters.label(ranges)});
    }
  }
  if (has_free) ends.push_back(last);
  return graph(std::move(edges), std::move(ends), last + 1);
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
