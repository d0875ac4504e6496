#pragma once
// The scanner of Kimi's and Moonlight's tiktoken files: one pattern, whose alternatives are tried in this order, with
// U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]], W = [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]:
//   [\p{Han}]+
//   [^\r\n\p{L}\p{N}]?U*W+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   [^\r\n\p{L}\p{N}]?U+W*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   \p{N}{1,3}  |   ?[^\s\p{L}\p{N}]+[\r\n]*  |  \s*[\r\n]+ | \s+(?!\S) | \s+
// Every character is in a match. Before, as the published tokenizer does, a text is cut after 400,000 characters, and
// in every run of more than 25,000 characters that are all white space or all not.
//
//   split_kimi(text, emit);          // emit(const char* piece_end)
//
// Thread-safe.

#include <cstdint>
#include <string_view>

#include "text/pieces/ascii_word.h"
#include "text/pieces/char_scanner.h"

namespace fathom::text {

class KimiMatcher {
 public:
  explicit KimiMatcher(const UnicodeClasses& classes) : scan_(classes) {}

  // The end of the match that starts at p. REQUIRES: p < end.
  const char* match(const char* p, const char* end) const;

 private:
  const char* match_word(const char* p, const char* end) const;
  const char* match_to_lower(const char* p, const char* end) const;
  const char* match_from_upper(const char* p, const char* end) const;
  CharScanner scan_;
};

// The end of an ASCII word at p with at most one space before it and what is abbreviated behind it, or null where the
// general matcher has to look. Most pieces of English text are one. REQUIRES: p < end.
const char* match_ascii_kimi_word(const char* p, const char* end);

// The stretches of a text that the published tokenizer encodes one by one.
class KimiStretches {
 public:
  explicit KimiStretches(std::string_view text);

  // The end of the next stretch; the text's end again and again. No stretch of a text that is not empty is.
  const char* next();

 private:
  CharScanner scan_;
  const char* p_;
  const char* end_;
  int num_chars_ = 0;  // since the last cut by number
  int run_chars_ = 0;
  bool run_is_space_ = false;
};

template <class Emit>
void split_kimi(std::string_view text, Emit& emit) {
  const KimiMatcher matcher(unicode_classes());
  KimiStretches stretches(text);
  const char* p = text.data();
  const char* const text_end = p + text.size();
  while (p != text_end) {
    const char* const end = stretches.next();
    while (p != end) {
      const char* match_end = match_ascii_kimi_word(p, end);
      if (match_end == nullptr) match_end = matcher.match(p, end);
      emit(match_end);
      p = match_end;
    }
  }
}

}  // namespace fathom::text
