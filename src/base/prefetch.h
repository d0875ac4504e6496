#pragma once
// prefetch(): asks for the cache lines of something that will be read soon, without waiting for them.
//
//   prefetch(*sequences[i + 4]);      // while sequences[i] is worked on
//
// For loops over objects that lie apart and that nobody has touched since the step before.

#include <cstddef>

namespace fathom {

inline constexpr size_t kCacheLineBytes = 64;

// REQUIRES: the object exists; of what it points to nothing is asked for.
template <class T>
void prefetch(const T& object) {
  const char* const bytes = reinterpret_cast<const char*>(&object);
  for (size_t at = 0; at < sizeof(T); at += kCacheLineBytes) __builtin_prefetch(bytes + at);
}

}  // namespace fathom
