#include "grammar/schema/json_text.h"

#include <map>
#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/regex_parser.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

constexpr char32_t kLastAscii = 0x7F;

using Ranges = std::vector<CodePointRange>;

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

// Escapes and characters beyond ASCII are calls of rules: each takes a dozen states, and many edges have the same.
class Characters {
 public:
  explicit Characters(RuleSet& rules) : rules_(rules) {}

  Expression label(const Ranges& ranges) {
    static const Ranges escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    static const Ranges plain = intersection(complement(escaped), {{0, kLastAscii}});
    static const Ranges wide = complement({{0, kLastAscii}});
    std::vector<Expression> ways;
    if (const Ranges some = intersection(ranges, plain); !some.empty()) {
      ways.push_back(character(some));
    }
    for (const Ranges& kind : {escaped, wide}) {
      if (const Ranges some = intersection(ranges, kind); !some.empty()) {
        ways.push_back(shared(some, kind));
      }
    }
    return choice(std::move(ways));
  }

 private:
  Expression shared(const Ranges& ranges, const Ranges& all) {
    if (ranges.size() == 1 && ranges[0].last - ranges[0].first < 2) {
      return json_string_character(ranges);
    }
    std::vector<std::pair<char32_t, char32_t>> key, whole;
    for (const CodePointRange& range : ranges) key.emplace_back(range.first, range.last);
    for (const CodePointRange& range : all) whole.emplace_back(range.first, range.last);
    if (key == whole) {
      return all[0].first == 0 ? json_escape(rules_) : json_wide_character(rules_);
    }
    const auto [known, is_new] = rule_of_.try_emplace(key, -1);
    if (is_new) known->second = rules_.add(json_string_character(ranges));
    return rule(known->second);
  }

  RuleSet& rules_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, int> rule_of_;
};

}  // namespace

Expression json_text(const TextSet& set, RuleSet& rules) {
  Characters characters(rules);
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

}  // namespace fathom::grammar
