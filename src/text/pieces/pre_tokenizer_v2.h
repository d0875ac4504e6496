#pragma once
// The V2 family's scanner. Six splits, each inside the pieces that the one before left:
//   [\r\n]   \s?[cased letters]+   \s?[punctuation]+   \s+$   [Han and Hangul]+   single digits
// Some classes overlap (the punctuation ranges hold the ASCII letters), which cuts "h\u00e9llo" in three.
//
//   V2Splitter<Emit>(emit).split(text);     // emit(const char* piece_end)
//
// Not synchronised.

#include <string_view>

#include "text/pieces/ascii_word.h"
#include "text/pieces/char_scanner.h"

namespace fathom::text {

template <class Emit>
class V2Splitter {
 public:
  explicit V2Splitter(Emit& emit) : scan_(unicode_classes()), emit_(emit) {}

  void split(std::string_view text) {
    const char* p = text.data();
    const char* const end = p + text.size();
    const char* gap_begin = p;
    for (; p != end; ++p) {
      if (*p != '\r' && *p != '\n') continue;
      if (gap_begin != p) split_cased(gap_begin, p);
      emit_(p + 1);
      gap_begin = p + 1;
    }
    if (gap_begin != end) split_cased(gap_begin, end);
  }

 private:
  // The end of a match of \s?[mask]+ at p, or null.
  const char* match_spaced(const char* p, const char* end, uint16_t mask) const {
    const ClassedChar c = scan_.at(p, end);
    const char* const next = p + c.length;
    if (c.classes & kUnicodeSpace) {
      const char* const run_end = scan_.skip(next, end, mask);
      if (run_end != next) return run_end;
    }
    return c.classes & mask ? scan_.skip(next, end, mask) : nullptr;
  }

  void split_cased(const char* p, const char* end) {
    const char* gap_begin = p;
    while (p != end) {
      // The five later splits leave a word of ASCII letters whole, so it can be passed on at once.
      const char* match_end = match_ascii_word(p, end);
      const bool is_final = match_end != nullptr;
      if (!is_final) match_end = match_spaced(p, end, kV2Cased);
      if (match_end == nullptr) {
        p += scan_.at(p, end).length;
        continue;
      }
      if (gap_begin != p) split_marks(gap_begin, p);
      if (is_final) {
        emit_(match_end);
      } else {
        split_marks(p, match_end);
      }
      p = gap_begin = match_end;
    }
    if (gap_begin != end) split_marks(gap_begin, end);
  }

  void split_marks(const char* p, const char* end) {
    const char* gap_begin = p;
    while (p != end) {
      const char* const match_end = match_spaced(p, end, kV2Punctuation);
      if (match_end == nullptr) {
        p += scan_.at(p, end).length;
        continue;
      }
      if (gap_begin != p) split_trailing_space(gap_begin, p);
      split_trailing_space(p, match_end);
      p = gap_begin = match_end;
    }
    if (gap_begin != end) split_trailing_space(gap_begin, end);
  }

  void split_trailing_space(const char* begin, const char* end) {
    const char* space = begin;  // where the run of white space that ends here began
    for (const char* p = begin; p != end;) {
      const ClassedChar c = scan_.at(p, end);
      p += c.length;
      if (!(c.classes & kUnicodeSpace)) space = p;
    }
    if (space != begin) split_ideographs(begin, space);
    if (space != end) split_ideographs(space, end);
  }

  void split_ideographs(const char* p, const char* end) {
    while (p != end) {
      const bool inside = scan_.at(p, end).classes & kV2Ideograph;
      const char* const run_end =
          inside ? scan_.skip(p, end, kV2Ideograph) : scan_.skip_outside(p, end, kV2Ideograph);
      split_digits(p, run_end);
      p = run_end;
    }
  }

  void split_digits(const char* p, const char* end) {
    const char* gap_begin = p;
    while (p != end) {
      const ClassedChar c = scan_.at(p, end);
      if (c.classes & kUnicodeDigit) {
        if (gap_begin != p) emit_(p);
        emit_(p + c.length);
        gap_begin = p + c.length;
      }
      p += c.length;
    }
    if (gap_begin != end) emit_(end);
  }

  CharScanner scan_;
  Emit& emit_;
};

}  // namespace fathom::text
