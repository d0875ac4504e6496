#include "text/output/json_object_machine.h"

namespace fathom::text {
namespace {

constexpr bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonObjectMachine::State JsonObjectMachine::push(char c) {
  if (!step(static_cast<uint8_t>(c))) return State::kFailed;
  return is_done_ ? State::kDone : State::kMore;
}

bool JsonObjectMachine::step(uint8_t c) {
  const bool is_space = is_json_space(static_cast<char>(c));
  switch (expect_) {
    case Expect::kTopObject:
      return c == '{' && open(true);
    case Expect::kFirstKey:
      if (c == '}') return close(), true;
      [[fallthrough]];
    case Expect::kKey:
      if (is_space) return true;
      is_key_ = true;
      expect_ = Expect::kString;
      return c == '"';
    case Expect::kColon:
      if (c == ':') expect_ = Expect::kValue;
      return is_space || c == ':';
    case Expect::kFirstValue:
      if (c == ']') return close(), true;
      [[fallthrough]];
    case Expect::kValue:
      return is_space || step_value(c);
    case Expect::kAfterValue:
      return is_space || step_after_value(c);
    case Expect::kString:
    case Expect::kContinuation:
      return step_string(c);
    case Expect::kEscape:
    case Expect::kLowBackslash:
    case Expect::kLowU:
      return step_escape(c);
    case Expect::kHex:
      return step_hex(c);
    case Expect::kLiteral:
      if (c != static_cast<uint8_t>(literal_rest_.front())) return false;
      literal_rest_.remove_prefix(1);
      if (literal_rest_.empty()) value_ended();
      return true;
    default:
      return step_number(c);
  }
}

bool JsonObjectMachine::step_value(uint8_t c) {
  switch (c) {
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '"':
      is_key_ = false;
      expect_ = Expect::kString;
      return true;
    case 't':
      literal_rest_ = "rue";
      expect_ = Expect::kLiteral;
      return true;
    case 'f':
      literal_rest_ = "alse";
      expect_ = Expect::kLiteral;
      return true;
    case 'n':
      literal_rest_ = "ull";
      expect_ = Expect::kLiteral;
      return true;
    case '-':
      expect_ = Expect::kMinus;
      return true;
    case '0':
      expect_ = Expect::kZero;
      return true;
    default:
      expect_ = Expect::kInteger;
      return is_digit(c);
  }
}

bool JsonObjectMachine::step_after_value(uint8_t c) {
  const bool in_object = objects_[static_cast<size_t>(depth_ - 1)];
  if (c == ',') {
    expect_ = in_object ? Expect::kKey : Expect::kValue;
    return true;
  }
  if (c != static_cast<uint8_t>(in_object ? '}' : ']')) return false;
  close();
  return true;
}

bool JsonObjectMachine::step_string(uint8_t c) {
  if (expect_ == Expect::kContinuation) {
    if (c < low_ || c > high_) return false;
    low_ = 0x80;
    high_ = 0xBF;
    if (--remaining_ == 0) expect_ = Expect::kString;
    return true;
  }
  if (c == '"') {
    expect_ = is_key_ ? Expect::kColon : Expect::kAfterValue;
    return true;
  }
  if (c == '\\') return expect_ = Expect::kEscape, true;
  if (c < 0x80) return c >= 0x20;
  // RFC 3629, section 4: the lead byte says how many bytes follow and narrows the first of them.
  if (c < 0xC2 || c > 0xF4) return false;
  remaining_ = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
  low_ = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
  high_ = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
  expect_ = Expect::kContinuation;
  return true;
}

bool JsonObjectMachine::step_escape(uint8_t c) {
  if (expect_ == Expect::kLowBackslash) return expect_ = Expect::kLowU, c == '\\';
  if (c == 'u') {
    remaining_ = 4;
    code_unit_ = 0;
    expect_ = Expect::kHex;
    return true;
  }
  if (expect_ == Expect::kLowU) return false;
  expect_ = Expect::kString;
  return std::string_view("\"\\/bfnrt").find(static_cast<char>(c)) != std::string_view::npos;
}

bool JsonObjectMachine::step_hex(uint8_t c) {
  const uint8_t lower = static_cast<uint8_t>(c | 0x20);
  if (!is_digit(c) && (lower < 'a' || lower > 'f')) return false;
  code_unit_ = code_unit_ * 16 + (is_digit(c) ? c - '0' : lower - 'a' + 10u);
  if (--remaining_ > 0) return true;
  const bool is_high = code_unit_ >= 0xD800 && code_unit_ < 0xDC00;
  const bool is_low = code_unit_ >= 0xDC00 && code_unit_ < 0xE000;
  if (is_low != wants_low_surrogate_) return false;
  wants_low_surrogate_ = is_high;
  expect_ = is_high ? Expect::kLowBackslash : Expect::kString;
  return true;
}

bool JsonObjectMachine::step_number(uint8_t c) {
  switch (expect_) {
    case Expect::kMinus:
      expect_ = c == '0' ? Expect::kZero : Expect::kInteger;
      return is_digit(c);
    case Expect::kPoint:
      expect_ = Expect::kFraction;
      return is_digit(c);
    case Expect::kExponent:
      expect_ = c == '+' || c == '-' ? Expect::kExponentSign : Expect::kExponentDigits;
      return expect_ == Expect::kExponentSign || is_digit(c);
    case Expect::kExponentSign:
      expect_ = Expect::kExponentDigits;
      return is_digit(c);
    default:
      break;
  }
  if (is_digit(c) && expect_ != Expect::kZero) return true;
  const bool is_whole = expect_ == Expect::kZero || expect_ == Expect::kInteger;
  if (c == '.' && is_whole) return expect_ = Expect::kPoint, true;
  if ((c | 0x20) == 'e' && expect_ != Expect::kExponentDigits)
    return expect_ = Expect::kExponent, true;
  // A number ends where something else begins.
  value_ended();
  return step(c);
}

bool JsonObjectMachine::open(bool is_object) {
  if (depth_ == kMaxDepth) return false;
  objects_[static_cast<size_t>(depth_++)] = is_object;
  expect_ = is_object ? Expect::kFirstKey : Expect::kFirstValue;
  return true;
}

void JsonObjectMachine::close() {
  is_done_ = --depth_ == 0;
  value_ended();
}

bool is_json_object(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && is_json_space(text[i])) ++i;
  JsonObjectMachine machine;
  auto state = JsonObjectMachine::State::kMore;
  while (i < text.size() && state == JsonObjectMachine::State::kMore)
    state = machine.push(text[i++]);
  while (i < text.size() && is_json_space(text[i])) ++i;
  return state == JsonObjectMachine::State::kDone && i == text.size();
}

}  // namespace fathom::text
