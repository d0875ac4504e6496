#include "text/byte_alphabet.h"

#include <array>

#include "text/pieces/utf8.h"

namespace fathom::text {
namespace {

constexpr uint32_t kFirstShifted = 0x100;
constexpr uint32_t kNumShifted = 68;

struct Alphabet {
  std::array<uint32_t, 256> code_point_of{};
  std::array<int16_t, kFirstShifted + kNumShifted> byte_of{};  // -1: not in the alphabet
};

constexpr bool spells_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of) byte = -1;
  uint32_t next = kFirstShifted;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t code_point = spells_itself(byte) ? byte : next++;
    alphabet.code_point_of[byte] = code_point;
    alphabet.byte_of[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string spelling_of_byte(uint8_t byte) {
  const uint32_t code_point = kAlphabet.code_point_of[byte];
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  std::string bytes;
  const char* const end = token.data() + token.size();
  for (const char* p = token.data(); p != end;) {
    const Utf8Char c = next_utf8(p, end);
    if (!c.valid || c.code_point >= kAlphabet.byte_of.size()) return std::nullopt;
    const int byte = kAlphabet.byte_of[c.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    p += c.length;
  }
  return bytes;
}

}  // namespace fathom::text
