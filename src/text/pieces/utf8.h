#pragma once
// UTF-8, one character at a time and as a stream. Invalid text is cut as Unicode recommends (section 3.9,
// "maximal subpart"): the longest prefix of a character counts as one error, any other byte as its own.
//
//   const Utf8Char c = next_utf8(p, end);           // c.length >= 1 always: a scan makes progress
//   Utf8Lossy text; text.append("\xe4\xb8", out);   // nothing yet
//   text.append("\xad", out);                       // the whole character
//   text.finish(out);                               // what is left unfinished becomes one U+FFFD
//
// Pure functions and plain values; not synchronised.

#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::text {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

struct Utf8Char {
  uint32_t code_point = 0;  // 0 where !valid
  int length = 1;           // bytes: of the character, or of the maximal subpart where !valid
  bool valid = false;
  bool truncated = false;  // !valid only because the text ends inside the character
};

// REQUIRES: p < end.
Utf8Char next_utf8(const char* p, const char* end);

bool is_valid_utf8(std::string_view text);

// Turns bytes that arrive in pieces into valid UTF-8, whole characters only.
class Utf8Lossy {
 public:
  // Appends to `out` the characters that `bytes` completes, U+FFFD for each error.
  void append(std::string_view bytes, std::string& out);
  // Ends the text: an unfinished character becomes one U+FFFD. The object can be used again.
  void finish(std::string& out);

 private:
  std::string pending_;  // a proper prefix of one character, at most 3 bytes
};

}  // namespace fathom::text
