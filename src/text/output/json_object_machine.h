#pragma once
// Recognises one JSON object byte by byte: RFC 8259, valid UTF-8, paired surrogate escapes, at most 64
// levels. It knows the object's last byte when it sees it, and the first byte that cannot belong to one, so
// a caller may stop there. Constant memory.
//
//   JsonObjectMachine machine;
//   while (machine.push(next()) == JsonObjectMachine::State::kMore) {}
//
// Not synchronised.

#include <bitset>
#include <cstdint>
#include <string_view>

namespace fathom::text {

class JsonObjectMachine {
 public:
  enum class State { kMore, kDone, kFailed };
  static constexpr int kMaxDepth = 64;

  // REQUIRES: no earlier push returned kDone or kFailed.
  State push(char c);
  // Inside a string, where any text without quotes, backslashes and control characters may follow.
  bool in_string() const { return expect_ == Expect::kString; }
  // Behind a comma of the object itself, where nothing of its next member has come.
  bool at_next_member() const { return depth_ == 1 && expect_ == Expect::kKey; }

 private:
  enum class Expect : uint8_t {
    kTopObject,  // the object's '{'
    kFirstKey,   // after '{': a key or '}'
    kKey,        // after ',' in an object
    kColon,
    kValue,       // after ':' or after ',' in an array
    kFirstValue,  // after '[': a value or ']'
    kAfterValue,  // ',' or the closing bracket
    kString,
    kEscape,  // after a backslash
    kHex,     // inside \uXXXX
    kLowBackslash,
    kLowU,          // a high surrogate escape wants its low half
    kContinuation,  // inside a multi-byte UTF-8 character
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kLiteral,  // inside true, false, null
  };

  bool step(uint8_t c);         // false: the byte cannot stand here
  bool step_value(uint8_t c);   // the first byte of a value
  bool step_string(uint8_t c);  // inside a string
  bool step_escape(uint8_t c);
  bool step_hex(uint8_t c);
  bool step_number(uint8_t c);
  bool step_after_value(uint8_t c);
  bool open(bool is_object);
  void close();
  void value_ended() { expect_ = Expect::kAfterValue; }

  Expect expect_ = Expect::kTopObject;
  bool is_done_ = false;
  bool is_key_ = false;  // the string being read is a key
  int depth_ = 0;
  std::bitset<kMaxDepth> objects_;    // per open level: object or array
  uint8_t remaining_ = 0;             // continuation bytes or hex digits still to come
  uint8_t low_ = 0x80, high_ = 0xBF;  // range of the next continuation byte
  uint32_t code_unit_ = 0;
  bool wants_low_surrogate_ = false;
  std::string_view literal_rest_;
};

// JSON white space.
constexpr bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Whether the text is one JSON object, perhaps between white space.
bool is_json_object(std::string_view text);

}  // namespace fathom::text
