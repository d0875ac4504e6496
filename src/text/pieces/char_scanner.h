#pragma once
// What the pre-tokenizers' scanners share: the classes of the character at a position, and runs.
//
//   const CharScanner scan{unicode_classes()};
//   p = scan.skip(p, end, kUnicodeLetter);       // past the letters
//
// A view; not for use outside the scanners. Thread-safe.

#include "text/pieces/unicode_classes.h"
#include "text/pieces/utf8.h"

namespace fathom::text {

inline bool is_newline(char c) { return c == '\r' || c == '\n'; }

inline const char* skip_newlines(const char* p, const char* end) {
  while (p != end && is_newline(*p)) ++p;
  return p;
}

struct ClassedChar {
  uint16_t classes = 0;  // bits of unicode_classes.h; 0 for a byte that is not valid UTF-8
  int length = 1;        // bytes
};

class CharScanner {
 public:
  explicit CharScanner(const UnicodeClasses& classes)
      : classes_(&classes), ascii_(classes.ascii()) {}

  // REQUIRES: p < end.
  ClassedChar at(const char* p, const char* end) const {
    const auto first = static_cast<uint8_t>(*p);
    return first < 0x80 ? ClassedChar{ascii_[first], 1} : at_multibyte(p, end);
  }

  // The end of the longest run from p of characters that are in any of the classes.
  const char* skip(const char* p, const char* end, uint16_t mask) const {
    while (p != end) {
      const ClassedChar c = at(p, end);
      if (!(c.classes & mask)) break;
      p += c.length;
    }
    return p;
  }

  // The end of the longest run from p of characters that are in none of the classes.
  const char* skip_outside(const char* p, const char* end, uint16_t mask) const {
    while (p != end) {
      const ClassedChar c = at(p, end);
      if (c.classes & mask) break;
      p += c.length;
    }
    return p;
  }

  // The end of a match of \s*[\r\n]+ | \s+(?!\S) | \s+ at p: a run of white space goes up to its last line break;
  // without one, up to its last character, which is left to the word that follows. REQUIRES: a white space at p.
  const char* match_space(const char* p, const char* end) const {
    const char* after_newline = nullptr;
    const char* last = p;
    const char* q = p;
    while (q != end) {
      const ClassedChar c = at(q, end);
      if (!(c.classes & kUnicodeSpace)) break;
      last = q;
      q += c.length;
      if (is_newline(*last)) after_newline = q;
    }
    if (after_newline != nullptr) return after_newline;
    return q == end || last == p ? q : last;
  }

 private:
  ClassedChar at_multibyte(const char* p, const char* end) const {
    const Utf8Char c = next_utf8(p, end);
    return c.valid ? ClassedChar{(*classes_)[c.code_point], c.length} : ClassedChar{};
  }

  const UnicodeClasses* classes_;
  const uint16_t* ascii_;  // [0x80]
};

}  // namespace fathom::text
