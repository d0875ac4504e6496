#include "http/header_syntax.h"

#include <algorithm>
#include <array>

namespace fathom::http {
namespace {

constexpr std::string_view kAlphanumeric =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

constexpr std::array<bool, 256> char_set(std::string_view more) {
  std::array<bool, 256> set{};
  for (const char c : kAlphanumeric) set[static_cast<unsigned char>(c)] = true;
  for (const char c : more) set[static_cast<unsigned char>(c)] = true;
  return set;
}

constexpr auto kTokenChars = char_set("!#$%&'*+-.^_`|~");
constexpr auto kHostChars = char_set("-._~%!$&'()*+,;=:[]");
constexpr auto kRequestIdChars = char_set("_-");

bool all_in(std::string_view text, const std::array<bool, 256>& set) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return set[static_cast<unsigned char>(c)]; });
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool is_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || (byte >= 0x20 && byte != 0x7f);
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool is_token_char(char c) { return kTokenChars[static_cast<unsigned char>(c)]; }

bool is_token(std::string_view text) { return !text.empty() && all_in(text, kTokenChars); }

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<HeaderLine> parse_header_line(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return std::nullopt;
  const std::string_view value = line.substr(colon + 1);
  if (!std::all_of(value.begin(), value.end(), is_value_char)) return std::nullopt;
  return HeaderLine{to_lower(line.substr(0, colon)), std::string(trim(value))};
}

bool is_valid_host(std::string_view text) {
  if (text.empty() || text.size() > 255 || !all_in(text, kHostChars)) return false;
  // The port is what follows the last colon, unless that one belongs to an IPv6 address.
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (text.front() == '[' && bracket == std::string_view::npos) return false;
  if (colon == std::string_view::npos) return true;
  if (bracket != std::string_view::npos && colon < bracket) return bracket == text.size() - 1;
  const std::string_view port = text.substr(colon + 1);
  if (colon == 0 || port.size() > 5 || !is_digits(port)) return false;
  const std::string_view host = text.substr(0, colon);
  return host.front() == '[' ? host.back() == ']' : host.find(':') == std::string_view::npos;
}

bool list_has_token(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (equals_ignoring_case(trim(list.substr(0, comma)), token)) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

bool is_token_list(std::string_view list) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view element = trim(list.substr(0, comma));
    if (!element.empty() && !is_token(element)) return false;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return true;
}

bool is_valid_request_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && all_in(text, kRequestIdChars);
}

}  // namespace fathom::http
