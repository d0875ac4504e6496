#pragma once
// The scanners' short cut for words of ASCII letters.
//
//   match_ascii_word(" the end", ...)  ->  past "the"
//
// Pure functions, thread-safe.

namespace fathom::text {

inline bool is_ascii_letter(char c) {
  const auto lower = static_cast<unsigned char>(c | 0x20);
  return lower >= 'a' && lower <= 'z';
}

// The end of an English word at p with at most one space before it, or null where the general matcher has
// to look. Both families keep such a word whole, and most pieces of English text are one. REQUIRES: p < end.
inline const char* match_ascii_word(const char* p, const char* end) {
  const char* q = *p == ' ' ? p + 1 : p;
  if (q == end || !is_ascii_letter(*q)) return nullptr;
  while (q != end && is_ascii_letter(*q)) ++q;
  return q == end || static_cast<unsigned char>(*q) < 0x80 ? q : nullptr;
}

}  // namespace fathom::text
