#include "base/base64.h"

#include <cstdint>

namespace fathom {
namespace {

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(digit)) & 0xffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xff));
  }
  return bytes;
}

}  // namespace fathom
