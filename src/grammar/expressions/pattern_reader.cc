#include "grammar/expressions/pattern_reader.h"

#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/unicode_sets.h"

namespace fathom::grammar {
namespace {

using Ranges = std::vector<CodePointRange>;

constexpr int kMaxPatternRepetitions = 100'000;

const Ranges& digits() {
  static const Ranges ranges = {{'0', '9'}};
  return ranges;
}
const Ranges& word_characters() {
  static const Ranges ranges = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return ranges;
}
const Ranges& ascii_spaces() {
  static const Ranges ranges = {{'\t', '\r'}, {' ', ' '}};
  return ranges;
}
// What ECMAScript or Python call white space.
const Ranges& all_spaces() {
  static const Ranges ranges = {{'\t', '\r'},     {0x1C, 0x1F},     {' ', ' '},
                                {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return ranges;
}

void append(Ranges& all, const Ranges& more) { all.insert(all.end(), more.begin(), more.end()); }

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool PatternReader::skip(std::string_view prefix) {
  if (!starts_with(prefix)) return false;
  pos_ += prefix.size();
  return true;
}

bool PatternReader::fail(const std::string& what) {
  return budget_.fail(
      invalid_argument(std::string(name_) + " at byte " + std::to_string(pos_) + ": " + what));
}

char32_t PatternReader::read_character() {
  std::string_view rest = text_.substr(pos_);
  const std::optional<char32_t> c = take_utf8(rest);
  if (!c) {
    fail(at_end() ? "it ends too early" : "not valid UTF-8");
    pos_ = text_.size();
    return 0;
  }
  pos_ = text_.size() - rest.size();
  return *c;
}

char32_t PatternReader::read_hex(int num_digits) {
  char32_t value = 0;
  for (int i = 0; i < num_digits; ++i) {
    const int digit = hex_value(peek());
    if (digit < 0) {
      fail("an escape needs " + std::to_string(num_digits) + " hexadecimal digits");
      return 0;
    }
    value = value * 16 + static_cast<char32_t>(digit);
    ++pos_;
  }
  return value;
}

// Behind \u: HHHH, a pair of surrogates as two escapes, or {H...}.
char32_t PatternReader::read_unicode_escape() {
  char32_t value = 0;
  if (skip("{")) {
    int num_digits = 0;
    for (; num_digits < 6 && hex_value(peek()) >= 0; ++num_digits) {
      value = value * 16 + static_cast<char32_t>(hex_value(peek()));
      ++pos_;
    }
    if (num_digits == 0 || !skip("}")) fail("\\u{...} needs 1 to 6 hexadecimal digits");
  } else {
    value = read_hex(4);
    if (value >= 0xD800 && value < 0xDC00 && skip("\\u")) {
      const char32_t low = read_hex(4);
      if (low < 0xDC00 || low > 0xDFFF) fail("a high surrogate without its low surrogate");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  return checked_character(value);
}

char32_t PatternReader::checked_character(char32_t value) {
  if (value <= kMaxCodePoint && (value < 0xD800 || value > 0xDFFF)) return value;
  fail("an escape that is no Unicode character");
  return 0;
}

// \d and \w are ASCII in ECMAScript and Unicode's elsewhere: written is what both take.
std::optional<PatternReader::Escape> PatternReader::named_set(char letter) const {
  const bool is_pattern = dialect_ == Dialect::kPattern;
  switch (letter) {
    case 'd':
    case 'D':
      return negated_if(letter == 'D', {digits(), is_pattern ? any_digits() : digits(), true});
    case 'w':
    case 'W':
      return negated_if(
          letter == 'W',
          {word_characters(), is_pattern ? any_word_characters() : word_characters(), true});
    case 's':
    case 'S':
      return negated_if(letter == 'S', {ascii_spaces(), all_spaces(), true});
    default:
      return std::nullopt;
  }
}

PatternReader::Escape PatternReader::negated_if(bool is_negated, Escape escape) {
  if (!is_negated) return escape;
  return {complement(escape.wide), complement(escape.narrow), escape.is_set};
}

PatternReader::Escape PatternReader::cased(Escape escape) const {
  if (!ignores_case_) return escape;
  escape.narrow = with_other_case(escape.narrow);
  escape.wide = with_other_case(escape.wide, /*generous=*/true);
  return escape;
}

// Behind \p or \P.
PatternReader::Escape PatternReader::read_property(bool is_negated) {
  std::string name;
  if (skip("{")) {
    while (!at_end() && peek() != '}' && name.size() < 64) {
      name += peek();
      ++pos_;
    }
    if (!skip("}")) fail("\\p{...} needs }");
  }
  const std::optional<UnicodeSet> set = unicode_property(name);
  if (!set) {
    fail("the property \\p{" + name + "} is not supported");
    return {};
  }
  // The other case first: all dialects then agree about what is left.
  return negated_if(is_negated, cased({set->narrow, set->wide, true}));
}

std::optional<char32_t> PatternReader::named_character(char letter, bool in_class) {
  const bool is_rules = dialect_ == Dialect::kRules;
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'x':
      return read_hex(2);
    case 'u':
      return read_unicode_escape();
    case 'b':
      // Outside classes it is a word's border in patterns.
      return in_class || is_rules ? std::optional<char32_t>('\b') : std::nullopt;
    case 'a':
      return is_rules ? std::optional<char32_t>('\a') : std::nullopt;
    case 'e':
      return is_rules ? std::optional<char32_t>(0x1B) : std::nullopt;
    case 'U':
      return is_rules ? std::optional<char32_t>(checked_character(read_hex(8))) : std::nullopt;
    default:
      return std::nullopt;
  }
}

PatternReader::Escape PatternReader::read_any_escape(bool in_class) {
  const char letter = peek();
  if (const std::optional<Escape> set = named_set(letter)) {
    ++pos_;
    return *set;
  }
  if ((letter == 'p' || letter == 'P') && dialect_ == Dialect::kPattern) {
    ++pos_;
    return read_property(letter == 'P');
  }
  const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  char32_t c = 0;
  if (is_letter) {
    ++pos_;
    if (const std::optional<char32_t> named = named_character(letter, in_class)) {
      c = *named;
    } else {
      fail(std::string("\\") + letter + " is not supported");
    }
  } else if (letter == '0' && !(peek(1) >= '0' && peek(1) <= '9')) {
    ++pos_;
  } else if (letter >= '0' && letter <= '9') {
    fail("backreferences and octal escapes are not supported");
  } else {
    c = read_character();
  }
  return {{{c, c}}, {{c, c}}, false};
}

Ranges PatternReader::read_escape(bool generous) {
  Escape escape = read_any_escape(/*in_class=*/false);
  if (!escape.is_set) escape = cased(std::move(escape));
  return generous ? escape.wide : escape.narrow;
}

Ranges PatternReader::read_plain(bool generous) {
  const char32_t c = read_character();
  const Escape escape = cased({{{c, c}}, {{c, c}}, false});
  return generous ? escape.wide : escape.narrow;
}

PatternReader::Escape PatternReader::read_class_item() {
  if (skip("\\")) return read_any_escape(/*in_class=*/true);
  const char32_t c = read_character();
  return {{{c, c}}, {{c, c}}, false};
}

size_t PatternReader::find_plain(char c, size_t begin) const {
  for (size_t i = begin; i < text_.size(); ++i) {
    if (text_[i] == c) return i;
    if (text_[i] == '\\') ++i;
  }
  return text_.npos;
}

void PatternReader::check_class(size_t begin) {
  const size_t end = find_plain(']', begin);
  if (end == text_.npos || !budget_.charge(static_cast<int64_t>(end - begin))) return;
  const std::string advice = " is not supported, as dialects read it differently; write \\";
  if (end == begin && find_plain(']', end + 1) != text_.npos)
    fail("a class that begins with ]" + advice + "]");
  const std::string_view inner = text_.substr(begin, end - begin);
  for (size_t i = 0; i + 1 < inner.size(); ++i) {
    const char c = inner[i], next = inner[i + 1];
    const bool is_named = c == '[' && (next == ':' || next == '.' || next == '=') &&
                          inner.ends_with(next) && i + 2 < inner.size();
    if (is_named) fail("a class as [:alpha:]" + advice + "p{...}");
    if (c == next && (c == '&' || c == '-' || c == '~'))
      fail(std::string(2, c) + " in a class" + advice + c);
    if (c == '\\') ++i;
  }
  if (find_plain('[', begin) < end && ends_nested(begin)) fail("[ in a class" + advice + "[");
}

// Whether the class whose inner begins here has an end for dialects in which classes stand within classes.
bool PatternReader::ends_nested(size_t begin) {
  int depth = 1;
  for (size_t i = begin; i < text_.size() && budget_.charge(1); ++i) {
    if (text_[i] == '\\')
      ++i;
    else if (text_[i] == '[')
      ++depth;
    else if (text_[i] == ']' && --depth == 0)
      return true;
  }
  return false;
}

Ranges PatternReader::read_class(bool generous) {
  skip("[");
  const bool is_negated = skip("^");
  if (dialect_ == Dialect::kPattern) check_class(pos_);
  Ranges narrow, wide;
  while (!starts_with("]")) {
    if (at_end()) {
      fail("[ without ]");
      return {};
    }
    Escape item = read_class_item();
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++pos_;
      const Escape last = read_class_item();
      if (item.is_set || last.is_set) {
        fail("a range cannot begin or end with a set");
      } else if (item.narrow[0].first > last.narrow[0].first) {
        fail("a range whose ends are in the wrong order");
      } else {
        item.narrow = item.wide = {{item.narrow[0].first, last.narrow[0].first}};
      }
    }
    if (!item.is_set) item = cased(std::move(item));
    append(narrow, item.narrow);
    append(wide, item.wide);
    if (!budget_.charge(8)) return {};
  }
  skip("]");
  if (generous) std::swap(narrow, wide);
  return is_negated ? complement(std::move(wide)) : normalized(std::move(narrow));
}

int PatternReader::read_count() {
  int value = 0;
  if (peek() < '0' || peek() > '9') fail("a repetition needs a number");
  for (; peek() >= '0' && peek() <= '9'; ++pos_) {
    value = value * 10 + (peek() - '0');
    if (value > kMaxPatternRepetitions) {
      fail("more than " + std::to_string(kMaxPatternRepetitions) + " repetitions");
      return kMaxPatternRepetitions;
    }
  }
  return value;
}

// Behind the comma.
int PatternReader::read_last_count() {
  skip_blanks();
  if (peek() == '}') return kUnbounded;
  if (dialect_ == Dialect::kRules && skip("-1")) return kUnbounded;
  return read_count();
}

void PatternReader::skip_blanks() {
  if (dialect_ != Dialect::kRules) return;
  while (budget_.charge(1) && (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n'))
    ++pos_;
}

std::optional<Quantifier> PatternReader::read_quantifier() {
  if (skip("*")) return Quantifier{0, kUnbounded};
  if (skip("+")) return Quantifier{1, kUnbounded};
  if (skip("?")) return Quantifier{0, 1};
  if (!skip("{")) return std::nullopt;
  Quantifier quantifier;
  skip_blanks();
  quantifier.min = quantifier.max = read_count();
  skip_blanks();
  if (skip(",")) quantifier.max = read_last_count();
  skip_blanks();
  if (!skip("}")) fail("a repetition needs }");
  if (quantifier.min > quantifier.max) {
    fail("a repetition whose least count is above its largest");
    quantifier.max = quantifier.min;
  }
  return quantifier;
}

}  // namespace fathom::grammar
