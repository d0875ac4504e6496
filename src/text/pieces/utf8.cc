#include "text/pieces/utf8.h"

#include <algorithm>

namespace fathom::text {
namespace {

struct LeadByte {
  int length = 0;  // 0: no character starts with this byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xbf;
};

// Table 3-7 of the Unicode standard: the second byte's range keeps out overlong forms, surrogates and
// values past U+10FFFF.
LeadByte lead_byte(uint8_t byte) {
  if (byte < 0xc2) return {};
  if (byte < 0xe0) return {.length = 2};
  if (byte == 0xe0) return {.length = 3, .second_min = 0xa0};
  if (byte == 0xed) return {.length = 3, .second_max = 0x9f};
  if (byte < 0xf0) return {.length = 3};
  if (byte == 0xf0) return {.length = 4, .second_min = 0x90};
  if (byte < 0xf4) return {.length = 4};
  if (byte == 0xf4) return {.length = 4, .second_max = 0x8f};
  return {};
}

}  // namespace

Utf8Char next_utf8(const char* p, const char* end) {
  const auto first = static_cast<uint8_t>(*p);
  if (first < 0x80) return {.code_point = first, .length = 1, .valid = true};
  const LeadByte lead = lead_byte(first);
  if (lead.length == 0) return {};
  uint32_t code_point = first & (0x7fu >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (p + i == end) return {.length = i, .truncated = true};
    const auto byte = static_cast<uint8_t>(p[i]);
    const uint8_t min = i == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t max = i == 1 ? lead.second_max : uint8_t{0xbf};
    if (byte < min || byte > max) return {.length = i};
    code_point = code_point << 6 | (byte & 0x3fu);
  }
  return {.code_point = code_point, .length = lead.length, .valid = true};
}

bool is_valid_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p != end;) {
    const Utf8Char c = next_utf8(p, end);
    if (!c.valid) return false;
    p += c.length;
  }
  return true;
}

void Utf8Lossy::append(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_.append(bytes);
    bytes = joined;
    pending_.clear();
  }
  const char* const end = bytes.data() + bytes.size();
  const char* copied = bytes.data();
  for (const char* p = copied; p != end;) {
    const Utf8Char c = next_utf8(p, end);
    if (!c.valid) {
      out.append(copied, p);
      copied = p + c.length;
      if (c.truncated) {
        pending_.assign(p, end);
      } else {
        out.append(kReplacementCharacter);
      }
    }
    p += c.length;
  }
  out.append(copied, end);
}

void Utf8Lossy::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacementCharacter);
  pending_.clear();
}

}  // namespace fathom::text
