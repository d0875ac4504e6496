#pragma once
// prefetch(): asks for cache lines that will be read soon, without waiting for them.
//
//   prefetch(sequences[i + 4], Sequence::kStepLines);      // while sequences[i] is worked on
//
// For loops over objects that lie apart and that nobody has touched since the step before.

#include <cstddef>

namespace fathom {

inline constexpr size_t kCacheLineBytes = 64;

// The first lines of an object; null, as of an empty vector: nothing is asked for.
inline void prefetch(const void* object, size_t num_lines = 1) {
  // Looking for a page that does not exist takes longer than fetching a line.
  if (object == nullptr) return;
  const char* const bytes = static_cast<const char*>(object);
  for (size_t line = 0; line < num_lines; ++line)
    __builtin_prefetch(bytes + line * kCacheLineBytes);
}

}  // namespace fathom
