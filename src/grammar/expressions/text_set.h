#pragma once
// TextSet: a set of texts as a deterministic automaton over Unicode characters, for what an Expression cannot say
// alone: both of two patterns, all names but these, a pattern within a length.
//
//   std::optional<TextSet> names = text_set_of(parse_regex("^x-", {.search = true}, budget), budget);
//   names = combined(*names, set_of_words({"x-a"}), Combine::kOnlyFirst, budget);
//   if (names && !is_empty(*names)) Expression text = plain_text(*names);
//
// nullopt: it would take more than kMaxTextStates states, or the budget is spent. States that lead to no text of the
// set are left out. Plain data; pure functions.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"

namespace fathom::grammar {

constexpr int kMaxTextStates = 20'000;
constexpr int64_t kNoLimit = -1;  // of lengths

struct TextSet {
  struct Edge {
    char32_t first, last;
    int32_t target;
  };
  struct State {
    std::vector<Edge> edges;  // sorted and disjoint
    bool accepting = false;
  };
  std::vector<State> states;  // the first is the start
};

// The texts of an expression of literals, characters, sequences, choices and repetitions; nullopt for others.
std::optional<TextSet> text_set_of(const Expression& expression, Budget& budget);
TextSet all_texts();
TextSet set_of_words(const std::vector<std::string>& words);
// Texts of so many characters; max may be kNoLimit.
TextSet set_of_lengths(int64_t min, int64_t max);

enum class Combine : uint8_t { kBoth, kEither, kOnlyFirst };
std::optional<TextSet> combined(const TextSet& a, const TextSet& b, Combine how, Budget& budget);

bool is_empty(const TextSet& set);
bool holds(const TextSet& set, std::string_view text);

struct TextLengths {
  int64_t shortest = 0;
  int64_t longest = 0;  // kNoLimit: there is none
};
// REQUIRES: the set is not empty.
TextLengths lengths_of(const TextSet& set);

// The same set without texts that begin with a shorter one of the set.
TextSet without_longer(TextSet set);

// Where a state leads, and by which characters.
std::map<int32_t, std::vector<CodePointRange>> ranges_by_target(const TextSet::State& state);
// The texts as they are.
Expression plain_text(const TextSet& set);

}  // namespace fathom::grammar
