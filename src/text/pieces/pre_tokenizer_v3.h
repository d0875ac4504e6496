#pragma once
// The V3 family's scanner: \p{N}{1,3}, then [Han and kana]+, then the word pattern, each inside the pieces
// that the one before left.
//
//   split_v3(text, emit);          // emit(const char* piece_end)
//
// Thread-safe.

#include <string_view>

#include "text/pieces/ascii_word.h"
#include "text/pieces/char_scanner.h"

namespace fathom::text {

// One match of the word pattern:
//   [!-/:-@[-`{-~][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ |  ?[\p{P}\p{S}]+[\r\n]* |
//   \s*[\r\n]+ | \s+(?!\S) | \s+
class V3WordMatcher {
 public:
  explicit V3WordMatcher(const UnicodeClasses& classes) : scan_(classes) {}

  // The end of the match that starts at p, or null where none does. REQUIRES: p < end.
  const char* match(const char* p, const char* end) const;

 private:
  CharScanner scan_;
};

template <class Emit>
void split_v3(std::string_view text, Emit& emit) {
  constexpr int kNumberChars = 3;
  const UnicodeClasses& classes = unicode_classes();
  const CharScanner scan(classes);
  const V3WordMatcher words(classes);
  const char* p = text.data();
  const char* const text_end = p + text.size();
  while (p != text_end) {
    const ClassedChar first = scan.at(p, text_end);
    if (first.classes & kUnicodeNumber) {
      for (int i = 0; i < kNumberChars && p != text_end; ++i) {
        const ClassedChar c = scan.at(p, text_end);
        if (!(c.classes & kUnicodeNumber)) break;
        p += c.length;
      }
      emit(p);
      continue;
    }
    const char* const end = first.classes & kV3Script
                                ? scan.skip(p, text_end, kV3Script)
                                : scan.skip_outside(p, text_end, kV3Script | kUnicodeNumber);
    const char* gap_begin = p;  // characters since here matched nothing; they form one piece
    while (p != end) {
      const char* match_end = match_ascii_word(p, end);
      if (match_end == nullptr) match_end = words.match(p, end);
      if (match_end == nullptr) {
        p += scan.at(p, end).length;
        continue;
      }
      if (gap_begin != p) emit(p);
      emit(match_end);
      p = gap_begin = match_end;
    }
    if (gap_begin != end) emit(end);
  }
}

}  // namespace fathom::text
