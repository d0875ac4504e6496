#include "text/pieces/pre_tokenizer_v3.h"

namespace fathom::text {
namespace {

const char* skip_ascii_letters(const char* p, const char* end) {
  while (p != end && is_ascii_letter(*p)) ++p;
  return p;
}

}  // namespace

const char* V3WordMatcher::match(const char* p, const char* end) const {
  constexpr uint16_t kWord = kUnicodeLetter | kUnicodeMark;
  const ClassedChar c = scan_.at(p, end);
  const char* const next = p + c.length;
  const bool is_punctuation = c.classes & kUnicodePunctuation;
  if (is_punctuation && c.length == 1 && next != end && is_ascii_letter(*next)) {
    return skip_ascii_letters(next, end);
  }
  if (c.classes & kWord) return scan_.skip(next, end, kWord);
  if (!is_punctuation && !is_newline(*p)) {
    const char* const word_end = scan_.skip(next, end, kWord);
    if (word_end != next) return word_end;
  }
  const char* const marks = *p == ' ' ? next : p;
  const char* const marks_end = scan_.skip(marks, end, kUnicodePunctuation);
  if (marks_end != marks) return skip_newlines(marks_end, end);
  return c.classes & kUnicodeSpace ? scan_.match_space(p, end) : nullptr;
}

}  // namespace fathom::text
