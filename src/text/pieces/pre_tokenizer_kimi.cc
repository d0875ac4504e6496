#include "text/pieces/pre_tokenizer_kimi.h"

namespace fathom::text {
namespace {

constexpr size_t kMaxRunChars = 25'000;
constexpr int kMaxStretchChars = 400'000;
constexpr int kNumberChars = 3;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
char lowered(char c) { return is_upper(c) ? static_cast<char>(c | 0x20) : c; }

// Past (?i:'s|'t|'re|'ve|'m|'ll|'d) at p; p where there is none. Without regard to case U+017F is an s too.
const char* skip_abbreviation(const char* p, const char* end) {
  if (end - p < 2 || *p != '\'') return p;
  const char first = lowered(p[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if (end - p < 3) return p;
  const char second = lowered(p[2]);
  const bool is_long = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                       (first == 'l' && second == 'l') || (p[1] == '\xc5' && p[2] == '\xbf');
  return is_long ? p + 3 : p;
}

// str.isspace() of Python: four control characters more than \s.
bool is_python_space(const ClassedChar& c, const char* p) {
  return (c.classes & kUnicodeSpace) || (*p >= 0x1c && *p <= 0x1f);
}

}  // namespace

const char* match_ascii_kimi_word(const char* p, const char* end) {
  const char* q = *p == ' ' ? p + 1 : p;
  const char* const begin = q;
  while (q != end && is_upper(*q)) ++q;
  while (q != end && is_lower(*q)) ++q;
  if (q == begin || (q != end && static_cast<unsigned char>(*q) >= 0x80)) return nullptr;
  return skip_abbreviation(q, end);
}

const char* KimiMatcher::match(const char* p, const char* end) const {
  constexpr uint16_t kNoMark = kUnicodeSpace | kUnicodeLetter | kUnicodeNumber;
  const ClassedChar c = scan_.at(p, end);
  if (c.classes & kHan) return scan_.skip(p + c.length, end, kHan);
  if (const char* const word_end = match_word(p, end)) return word_end;
  if (c.classes & kUnicodeNumber) {
    const char* q = p;
    for (int i = 0; i < kNumberChars && q != end; ++i) {
      const ClassedChar digit = scan_.at(q, end);
      if (!(digit.classes & kUnicodeNumber)) break;
      q += digit.length;
    }
    return q;
  }
  const char* const marks = *p == ' ' ? p + 1 : p;
  const char* const marks_end = scan_.skip_outside(marks, end, kNoMark);
  if (marks_end != marks) return skip_newlines(marks_end, end);
  return scan_.match_space(p, end);
}

// The second and third alternative. Each is tried with the character before the word, then without.
const char* KimiMatcher::match_word(const char* p, const char* end) const {
  const ClassedChar c = scan_.at(p, end);
  const bool may_precede = !(c.classes & (kUnicodeLetter | kUnicodeNumber)) && !is_newline(*p);
  const char* const behind = may_precede ? p + c.length : nullptr;
  const char* word_end = may_precede ? match_to_lower(behind, end) : nullptr;
  if (word_end == nullptr) word_end = match_to_lower(p, end);
  if (word_end == nullptr && may_precede) word_end = match_from_upper(behind, end);
  if (word_end == nullptr) word_end = match_from_upper(p, end);
  return word_end == nullptr ? nullptr : skip_abbreviation(word_end, end);
}

// U*W+, or null. Where no W follows the run of U, the run gives back what is behind its last character that is both.
const char* KimiMatcher::match_to_lower(const char* p, const char* end) const {
  const char* behind_last_both = nullptr;
  while (p != end) {
    const ClassedChar c = scan_.at(p, end);
    if (!(c.classes & kKimiUpper)) break;
    p += c.length;
    if (c.classes & kKimiLower) behind_last_both = p;
  }
  const char* const lower_end = scan_.skip(p, end, kKimiLower);
  return lower_end != p ? lower_end : behind_last_both;
}

// U+W*, or null.
const char* KimiMatcher::match_from_upper(const char* p, const char* end) const {
  const char* const upper_end = scan_.skip(p, end, kKimiUpper);
  return upper_end == p ? nullptr : scan_.skip(upper_end, end, kKimiLower);
}

KimiStretches::KimiStretches(std::string_view text)
    : scan_(unicode_classes()), p_(text.data()), end_(p_ + text.size()) {
  if (text.size() <= kMaxRunChars) p_ = end_;  // no character has less than a byte
}

const char* KimiStretches::next() {
  const char* const begin = p_;
  while (p_ != end_) {
    const ClassedChar c = scan_.at(p_, end_);
    const bool is_space = is_python_space(c, p_);
    if (num_chars_ == kMaxStretchChars) {
      num_chars_ = 0;
      if (p_ != begin) return p_;
    }
    if (num_chars_ == 0 || is_space != run_is_space_) {
      run_chars_ = 0;
      run_is_space_ = is_space;
    } else if (run_chars_ == static_cast<int>(kMaxRunChars)) {
      run_chars_ = 0;
      if (p_ != begin) return p_;
    }
    ++run_chars_;
    ++num_chars_;
    p_ += c.length;
  }
  return end_;
}

}  // namespace fathom::text
