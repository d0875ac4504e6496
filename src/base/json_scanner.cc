#include "base/json_scanner.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <system_error>

namespace fathom::json {
namespace {

// Bytes that are nothing special within a string.
constexpr std::array<bool, 256> plain_bytes() {
  std::array<bool, 256> plain{};
  for (size_t byte = 0x20; byte < 0x80; ++byte) plain[byte] = byte != '"' && byte != '\\';
  return plain;
}
constexpr std::array<bool, 256> kIsPlain = plain_bytes();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// False for what is too large. What is too small is 0.
bool is_double(std::string_view number) {
  double value = 0;
  const std::from_chars_result read =
      std::from_chars(number.data(), number.data() + number.size(), value);
  return read.ec != std::errc::result_out_of_range ||
         std::isfinite(std::strtod(std::string(number).c_str(), nullptr));
}

// The value of "\uXXXX" at `at`; -1: there is none.
int escaped_unit(std::string_view text, size_t at) {
  if (text.size() - at < 6 || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int unit = 0;
  for (size_t i = at + 2; i < at + 6; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

}  // namespace

Scanner::Scanner(std::string_view text, int max_depth)
    : text_(text), max_depth_(static_cast<size_t>(max_depth)) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
}

bool Scanner::enter_object() {
  const size_t begin = position_;
  skip_space();
  if (peek() != '{') {
    position_ = begin;
    return false;
  }
  ++position_;
  depth_before_ = 1;
  state_ = State::kFirstMember;
  return true;
}

std::optional<Scanner::Member> Scanner::next_member() {
  if (state_ != State::kFirstMember && state_ != State::kMembers) return std::nullopt;
  skip_space();
  if (peek() == '}') {
    ++position_;
    state_ = State::kEnded;
    return std::nullopt;
  }
  const bool is_first = state_ == State::kFirstMember;
  state_ = State::kBroken;
  if (!is_first) {
    if (peek() != ',') return std::nullopt;
    ++position_;
    skip_space();
  }
  const size_t name_begin = position_;
  if (!skip_string()) return std::nullopt;
  const size_t name_end = position_;
  skip_space();
  if (peek() != ':') return std::nullopt;
  ++position_;
  skip_space();
  const size_t value_begin = position_;
  if (!skip_value()) return std::nullopt;
  state_ = State::kMembers;
  return Member{.name_token = text_.substr(name_begin, name_end - name_begin),
                .value = text_.substr(value_begin, position_ - value_begin)};
}

bool Scanner::at_end() {
  skip_space();
  return state_ == State::kEnded && position_ == text_.size();
}

bool Scanner::skip_whole() {
  skip_space();
  if (!skip_value()) return false;
  skip_space();
  return position_ == text_.size();
}

void Scanner::skip_space() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    ++position_;
  }
}

bool Scanner::skip_value() {
  open_.clear();
  bool has_next = true;
  while (has_next) {
    skip_space();
    const char c = peek();
    if (c == '{' || c == '[') {
      if (!open(c)) return false;
      skip_space();
      const bool is_empty = peek() == (c == '{' ? '}' : ']');
      if (!is_empty) {
        if (c == '{' && !skip_name()) return false;
        continue;
      }
    } else if (!skip_scalar()) {
      return false;
    }
    if (!after_value(has_next)) return false;
  }
  return true;
}

bool Scanner::open(char bracket) {
  open_.push_back(bracket);
  ++position_;
  return depth_before_ + open_.size() <= max_depth_;
}

// A value has ended, or a container has just begun and is empty: closes what ends here. has_next: another value
// follows.
bool Scanner::after_value(bool& has_next) {
  while (!open_.empty()) {
    skip_space();
    const char c = peek();
    if (c == (open_.back() == '{' ? '}' : ']')) {
      ++position_;
      open_.pop_back();
      continue;
    }
    if (c != ',') return false;
    ++position_;
    skip_space();
    return open_.back() != '{' || skip_name();
  }
  has_next = false;
  return true;
}

bool Scanner::skip_name() {
  if (!skip_string()) return false;
  skip_space();
  if (peek() != ':') return false;
  ++position_;
  return true;
}

bool Scanner::skip_scalar() {
  switch (peek()) {
    case '"':
      return skip_string();
    case 't':
      return skip_word("true");
    case 'f':
      return skip_word("false");
    case 'n':
      return skip_word("null");
    default:
      return skip_number();
  }
}

bool Scanner::skip_word(std::string_view word) {
  if (text_.substr(position_, word.size()) != word) return false;
  position_ += word.size();
  return true;
}

bool Scanner::skip_digits() {
  const size_t begin = position_;
  while (is_digit(peek())) ++position_;
  return position_ > begin;
}

bool Scanner::skip_number() {
  const size_t begin = position_;
  if (peek() == '-') ++position_;
  if (peek() == '0') {
    ++position_;
  } else if (!skip_digits()) {
    return false;
  }
  if (peek() == '.') {
    ++position_;
    if (!skip_digits()) return false;
  }
  if (peek() == 'e' || peek() == 'E') {
    ++position_;
    if (peek() == '+' || peek() == '-') ++position_;
    if (!skip_digits()) return false;
  }
  return is_double(text_.substr(begin, position_ - begin));
}

bool Scanner::skip_string() {
  if (peek() != '"') return false;
  ++position_;
  while (position_ < text_.size()) {
    const auto byte = static_cast<uint8_t>(text_[position_]);
    if (kIsPlain[byte]) {
      ++position_;
    } else if (byte == '"') {
      ++position_;
      return true;
    } else if (byte == '\\') {
      if (!skip_escape()) return false;
    } else if (byte < 0x80 || !skip_utf8()) {
      return false;
    }
  }
  return false;
}

bool Scanner::skip_escape() {
  const char kind = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
  if (kind != 'u') {
    position_ += 2;
    return kind != '\0' && std::string_view("\"\\/bfnrt").find(kind) != std::string_view::npos;
  }
  const int unit = escaped_unit(text_, position_);
  if (unit < 0) return false;
  position_ += 6;
  if (unit < 0xD800 || unit > 0xDFFF) return true;
  // The first half of a pair, and nothing but the second half behind it.
  if (unit > 0xDBFF) return false;
  const int second = escaped_unit(text_, position_);
  position_ += 6;
  return second >= 0xDC00 && second <= 0xDFFF;
}

// One character of two to four bytes: shortest form, no surrogate, at most U+10FFFF.
bool Scanner::skip_utf8() {
  const auto byte_at = [&](size_t offset) -> uint8_t {
    return position_ + offset < text_.size() ? static_cast<uint8_t>(text_[position_ + offset]) : 0;
  };
  const uint8_t lead = byte_at(0);
  if (lead < 0xC2 || lead > 0xF4) return false;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t first = 0x80, last = 0xBF;  // of the second byte
  if (lead == 0xE0) first = 0xA0;
  if (lead == 0xED) last = 0x9F;
  if (lead == 0xF0) first = 0x90;
  if (lead == 0xF4) last = 0x8F;
  if (byte_at(1) < first || byte_at(1) > last) return false;
  for (size_t i = 2; i < length; ++i) {
    if (byte_at(i) < 0x80 || byte_at(i) > 0xBF) return false;
  }
  position_ += length;
  return true;
}

}  // namespace fathom::json
