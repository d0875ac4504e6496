#include "grammar/schema/dsml_form.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/regex_parser.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

constexpr std::string_view kTagBegin = "<｜DSML｜", kTagEnd = "</｜DSML｜";
constexpr size_t kMaxNameBytes = 512;  // of a tag that its reader takes
// Free names are shorter; they have no quotation marks, brackets or control characters.
constexpr std::string_view kNamePattern = "[^\"<>\\x00-\\x1F\\x7F]{1,64}";
// Sets with more states are not taken apart further.
constexpr size_t kMaxStatesOfSet = 1000;

TextSet set_of_pattern(std::string_view pattern, bool is_search, Budget& budget) {
  const std::optional<TextSet> set =
      text_set_of(parse_regex(pattern, {.search = is_search}, budget), budget);
  return set ? *set : TextSet{.states = {{}}};
}

// Texts in which no tag begins.
std::optional<TextSet> texts(Budget& budget) {
  return combined(all_texts(), set_of_pattern("</?｜DSML｜", /*is_search=*/true, budget),
                  Combine::kOnlyFirst, budget);
}

}  // namespace

Expression dsml_parameter(const Marker& mark, const Expression& name, DsmlKind kind,
                          const Expression& value) {
  const bool is_text = kind == DsmlKind::kText;
  return sequence({literal("<"), marker(mark), literal("parameter name=\""), name,
                   literal(is_text ? "\" string=\"true\">" : "\" string=\"false\">"), value,
                   literal("</"), marker(mark), literal("parameter>")});
}

bool is_dsml_name(std::string_view name) {
  return name.size() <= kMaxNameBytes && name.find_first_of("\"\n") == name.npos;
}

bool is_dsml_text(std::string_view text) {
  return text.find(kTagBegin) == text.npos && text.find(kTagEnd) == text.npos;
}

// Characters beyond ASCII are calls of rules: each takes a dozen states, and many edges have the same.
Expression DsmlTexts::expression_of(const TextSet& set) {
  static const std::vector<CodePointRange> ascii_range = {{0, 0x7F}};
  static const std::vector<CodePointRange> wide_range = complement(ascii_range);
  std::map<std::vector<std::pair<char32_t, char32_t>>, int> rule_of;
  const auto wide_character = [&](const std::vector<CodePointRange>& ranges) {
    std::vector<std::pair<char32_t, char32_t>> key;
    for (const CodePointRange& range : ranges) key.emplace_back(range.first, range.last);
    const auto [known, is_new] = rule_of.try_emplace(std::move(key), -1);
    if (is_new) known->second = rules_.add(character(ranges));
    return rule(known->second);
  };
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  for (size_t i = 0; i < set.states.size() && rules_.budget().charge(32); ++i) {
    const auto from = static_cast<int>(i);
    if (set.states[i].accepting) ends.push_back(from);
    for (const auto& [target, ranges] : ranges_by_target(set.states[i])) {
      if (const auto ascii = intersection(ranges, ascii_range); !ascii.empty())
        edges.push_back({from, target, character(ascii)});
      if (const auto wide = intersection(ranges, wide_range); !wide.empty())
        edges.push_back({from, target, wide_character(wide)});
    }
  }
  return graph(std::move(edges), std::move(ends), static_cast<int>(set.states.size()));
}

Expression DsmlTexts::any_text() {
  if (any_text_ < 0) {
    const std::optional<TextSet> set = texts(rules_.budget());
    any_text_ = rules_.add(set ? expression_of(*set) : choice({}));
  }
  return rule(any_text_);
}

Expression DsmlTexts::any_name() {
  if (any_name_ < 0) {
    any_name_ = rules_.add(
        expression_of(set_of_pattern(kNamePattern, /*is_search=*/false, rules_.budget())));
  }
  return rule(any_name_);
}

std::optional<Expression> DsmlTexts::text_of(const TextSet& set) {
  Budget& budget = rules_.budget();
  const std::optional<TextSet> safe = set.states.size() <= kMaxStatesOfSet
                                          ? texts(budget)
                                          : set_of_pattern("[^｜]*", /*is_search=*/false, budget);
  const std::optional<TextSet> kept =
      safe ? combined(set, *safe, Combine::kBoth, budget) : std::nullopt;
  if (!kept) return std::nullopt;
  return is_empty(*kept) ? choice({}) : expression_of(*kept);
}

std::optional<Expression> DsmlTexts::name_of(const TextSet& set) {
  const std::optional<TextSet> kept =
      combined(set, set_of_pattern(kNamePattern, /*is_search=*/false, rules_.budget()),
               Combine::kBoth, rules_.budget());
  if (!kept) return std::nullopt;
  return is_empty(*kept) ? choice({}) : expression_of(*kept);
}

}  // namespace fathom::grammar
