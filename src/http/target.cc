#include "http/target.h"

#include <algorithm>
#include <cstdint>

#include "http/header_syntax.h"

namespace fathom::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

enum class Part { kPath, kQuery };

// Appends the byte that %XY stands for; false when it may not stand there.
bool append_encoded(std::string_view text, size_t at, Part part, std::string* out) {
  if (at + 2 >= text.size()) return false;
  const int high = hex_digit(text[at + 1]), low = hex_digit(text[at + 2]);
  if (high < 0 || low < 0) return false;
  const char c = static_cast<char>(high * 16 + low);
  if (is_control(c)) return false;
  // An encoded separator would mean one thing to the router and another to whoever looks at the raw target.
  if (part == Part::kPath && c == '\\') return false;
  out->push_back(c);
  return true;
}

// The position in the decoded path of the first slash that was written as %2F. REQUIRES: `text`, the path as it came,
// can be decoded.
size_t find_encoded_slash(std::string_view text) {
  size_t decoded = 0;
  for (size_t i = 0; i < text.size(); ++i, ++decoded) {
    if (text[i] != '%') continue;
    if (text[i + 1] == '2' && (text[i + 2] == 'F' || text[i + 2] == 'f')) return decoded;
    i += 2;
  }
  return std::string::npos;
}

// Takes "http://host:port" off the front; false when what is there is neither that nor a path.
bool take_authority(std::string_view* target, std::string* authority) {
  if (!target->empty() && target->front() == '/') return true;
  const size_t colon = target->find("://");
  if (colon == std::string_view::npos) return false;
  const std::string scheme = to_lower(target->substr(0, colon));
  if (scheme != "http" && scheme != "https") return false;
  target->remove_prefix(colon + 3);
  const size_t end = std::min(target->find_first_of("/?"), target->size());
  *authority = target->substr(0, end);
  target->remove_prefix(end);
  return !authority->empty() && is_valid_host(*authority);
}

bool decode(std::string_view text, Part part, std::string* out) {
  out->reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (!append_encoded(text, i, part, out)) return false;
      i += 2;
    } else if (c == '+' && part == Part::kQuery) {
      out->push_back(' ');
    } else if (is_control(c) || c == ' ' || c == '#' || static_cast<unsigned char>(c) >= 0x80 ||
               (c == '\\' && part == Part::kPath)) {
      return false;
    } else {
      out->push_back(c);
    }
  }
  return is_valid_utf8(*out);
}

// The path as it came, each run of slashes one of them, and none at the end.
std::string with_single_slashes(std::string_view path) {
  std::string merged;
  for (const char c : path) {
    if (c != '/' || !merged.ends_with('/')) merged += c;
  }
  if (merged.size() > 1 && merged.ends_with('/')) merged.pop_back();
  return merged;
}

// Each segment is non-empty (the last one may be) and neither "." nor "..".
bool has_normal_segments(std::string_view path) {
  size_t begin = 1;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (segment == "." || segment == "..") return false;
    if (segment.empty() && end != path.size()) return false;
    begin = end + 1;
  }
  return true;
}

bool parse_query(std::string_view text, std::vector<std::pair<std::string, std::string>>* query) {
  while (!text.empty()) {
    const size_t ampersand = std::min(text.find('&'), text.size());
    const std::string_view field = text.substr(0, ampersand);
    text.remove_prefix(std::min(ampersand + 1, text.size()));
    if (field.empty()) continue;
    if (query->size() == kMaxQueryFields) return false;
    const size_t equals = std::min(field.find('='), field.size());
    auto& [name, value] = query->emplace_back();
    if (!decode(field.substr(0, equals), Part::kQuery, &name)) return false;
    if (equals < field.size() && !decode(field.substr(equals + 1), Part::kQuery, &value))
      return false;
  }
  return true;
}

// Length of the well-formed sequence at the front (Unicode table 3-7), 0 if there is none.
size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::optional<Target> parse_target(std::string_view target) {
  Target result;
  if (!take_authority(&target, &result.authority)) return std::nullopt;
  const size_t question = std::min(target.find('?'), target.size());
  const std::string path = with_single_slashes(question == 0 ? "/" : target.substr(0, question));
  if (!decode(path, Part::kPath, &result.path)) return std::nullopt;
  if (!has_normal_segments(result.path)) return std::nullopt;
  result.first_encoded_slash = find_encoded_slash(path);
  if (question < target.size() && !parse_query(target.substr(question + 1), &result.query))
    return std::nullopt;
  return result;
}

}  // namespace fathom::http
