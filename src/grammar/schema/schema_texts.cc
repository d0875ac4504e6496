#include "grammar/schema/schema_texts.h"

#include <algorithm>

#include "grammar/expressions/regex_parser.h"

namespace fathom::grammar {
namespace {

// Longer lengths are cut, so that automaton times length stays within the bound.
std::optional<TextSet> within_lengths(const TextSet& set, const StringFacts& facts,
                                      TextSets::Side side, Budget& budget) {
  if (is_empty(set)) return set;
  const TextLengths lengths = lengths_of(set);
  const bool is_short =
      lengths.longest == kNoLimit || (facts.max_length && lengths.longest > *facts.max_length);
  const bool needs_max = facts.max_length.has_value() && is_short;
  if (lengths.shortest >= facts.min_length && !needs_max) return set;
  const auto num_states = static_cast<int64_t>(set.states.size());
  int64_t max = needs_max ? *facts.max_length : kNoLimit;
  const int64_t longest = kMaxTextStates / num_states;
  if (max > longest && side == TextSets::kAtMost)
    max = std::max(longest, std::max(facts.min_length, lengths.shortest));
  if (std::max(max, facts.min_length) > kMaxTextStates) return std::nullopt;
  if (max != kNoLimit && max < facts.min_length) return TextSet{.states = {{}}};
  return combined(set, set_of_lengths(facts.min_length, max), Combine::kBoth, budget);
}

}  // namespace

const TextSet* TextSets::keep(const std::string& key, const Expression& expression) {
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new) entry->second = text_set_of(expression, budget_);
  return entry->second ? &*entry->second : nullptr;
}

const TextSet* TextSets::pattern(const std::string& pattern, Side side) {
  const std::string key = (side == kAtMost ? "<" : ">") + pattern;
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second ? &*known->second : nullptr;
  }
  return keep(key, parse_regex(pattern, {.search = true, .generous = side == kAtLeast}, budget_));
}

const TextSet* TextSets::format(const std::string& name) {
  const std::string key = "=" + name;
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second ? &*known->second : nullptr;
  }
  return keep(key, parse_regex(string_format_pattern(name), {}, budget_));
}

std::optional<TextSet> TextSets::set_of(const StringFacts& facts,
                                        const std::vector<std::string>& words, Side side) {
  std::optional<TextSet> set;
  const auto narrow = [&](const TextSet* with, Combine how) {
    if (with == nullptr) return false;
    if (!set && how == Combine::kBoth) {
      set = *with;
    } else {
      set = combined(set ? *set : all_texts(), *with, how, budget_);
    }
    return set.has_value();
  };
  for (const std::string& one : facts.patterns) {
    if (!narrow(pattern(one, side), Combine::kBoth)) return std::nullopt;
  }
  for (const std::string& one : facts.formats) {
    if (side == kAtMost && !narrow(format(one), Combine::kBoth)) return std::nullopt;
  }
  for (const std::string& one : facts.other_patterns) {
    if (!narrow(pattern(one, side == kAtMost ? kAtLeast : kAtMost), Combine::kOnlyFirst))
      return std::nullopt;
  }
  const TextSet excluded = set_of_words(words);
  if (!words.empty() && !narrow(&excluded, Combine::kOnlyFirst)) return std::nullopt;
  if (!set) set = all_texts();
  return within_lengths(*set, facts, side, budget_);
}

}  // namespace fathom::grammar
