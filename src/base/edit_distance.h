#pragma once
// How far a name is from another, for what a misspelling was meant to be.
//
//   edit_distance("sotp", "stop", 3)      // 1
//
// Pure function.

#include <string_view>

namespace fathom {

// How many letters must be added, removed, changed or swapped with the next one; more than `limit` is limit + 1.
// Capital letters, dashes and underscores between words count as nothing.
int edit_distance(std::string_view a, std::string_view b, int limit);

}  // namespace fathom
