#pragma once
// TextSets: the sets of texts that a schema's string keywords allow, each made once.
//
//   TextSets texts(budget);
//   const TextSet* names = texts.pattern("^x-", TextSets::kAtMost);     // null: too large
//   std::optional<TextSet> set = texts.set_of(facts.string, {}, TextSets::kAtMost);
//
// Dialects of patterns differ in what white space is, and formats are kept in their common forms: kAtMost never holds
// more than the keyword allows, kAtLeast never less. A pattern that is not supported fails the budget. Used by one
// thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expressions/text_set.h"
#include "grammar/schema/schema_facts.h"

namespace fathom::grammar {

class TextSets {
 public:
  enum Side : uint8_t { kAtMost, kAtLeast };

  explicit TextSets(Budget& budget) : budget_(budget) {}

  const TextSet* pattern(const std::string& pattern, Side side);
  const TextSet* format(const std::string& name);
  // The words are excluded. nullopt: too large.
  std::optional<TextSet> set_of(const StringFacts& facts, const std::vector<std::string>& words,
                                Side side);

 private:
  const TextSet* keep(const std::string& key, const Expression& expression);

  Budget& budget_;
  std::map<std::string, std::optional<TextSet>> known_;
};

// The schema's text for a format, as a pattern; empty: the format is not known.
std::string_view string_format_pattern(std::string_view format);

}  // namespace fathom::grammar
