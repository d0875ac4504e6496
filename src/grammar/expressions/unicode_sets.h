#pragma once
// What patterns know about Unicode: \p{...}, what any reader calls a word character or a digit, letters whose case does
// not matter. Tables: unicode_properties.inc.
//
//   std::optional<UnicodeSet> greek = unicode_property("Script=Greek");
//   with_other_case({{'k', 'k'}})                 // k, K and the sign of Kelvin
//
// Pure functions, thread-safe.

#include <optional>
#include <string_view>
#include <vector>

#include "grammar/expressions/expression.h"

namespace fathom::grammar {

// What every reader takes, and what any of them takes: characters of newer Unicode versions are in the second.
struct UnicodeSet {
  std::vector<CodePointRange> narrow, wide;
};

// The name between the braces: a general category (L, Lu, Uppercase_Letter), Script=, sc=, Script_Extensions= and scx=
// of the larger scripts, gc=, General_Category=, Any, ASCII, Assigned, Alphabetic, Uppercase, Lowercase, White_Space.
std::optional<UnicodeSet> unicode_property(std::string_view name);

const std::vector<CodePointRange>& any_word_characters();
const std::vector<CodePointRange>& any_digits();

// With what they are taken for where case does not matter: by every reader, or (generous) by any.
std::vector<CodePointRange> with_other_case(const std::vector<CodePointRange>& ranges,
                                            bool generous = false);

}  // namespace fathom::grammar
