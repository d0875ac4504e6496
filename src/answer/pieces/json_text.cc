#include "answer/pieces/json_text.h"

#include <charconv>
#include <cmath>

namespace fathom::answer {
namespace {

constexpr float kMinusInfinity = -9999.0f;

void append_escaped(std::string& out, unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
  }
}

}  // namespace

void append_json_inside(std::string& out, std::string_view text) {
  size_t plain_begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f) continue;
    out += text.substr(plain_begin, i - plain_begin);
    append_escaped(out, byte);
    plain_begin = i + 1;
  }
  out += text.substr(plain_begin);
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  append_json_inside(out, text);
  out += '"';
}

void append_json(std::string& out, float value) {
  if (std::isnan(value)) {
    out += "null";
    return;
  }
  if (std::isinf(value)) value = value < 0 ? kMinusInfinity : -kMinusInfinity;
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

void append_json_int(std::string& out, int64_t value) {
  char digits[24];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

void append_json_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json(out, text);
  }
}

}  // namespace fathom::answer
