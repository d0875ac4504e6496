#pragma once
// The characters of HTTP's grammar (RFC 9110, 9112), read strictly: no folding, no control characters, no space
// before a colon.
//
//   std::optional<HeaderLine> line = parse_header_line("Content-Type: text/plain");   // name in lower case
//
// Pure functions, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace fathom::http {

bool is_token(std::string_view text);  // not empty, only tchar
bool is_token_char(char c);
std::string to_lower(std::string_view text);  // ASCII
bool equals_ignoring_case(std::string_view a, std::string_view b);
std::string_view trim(std::string_view text);  // spaces and tabs

struct HeaderLine {
  std::string name, value;
};
// Without the line end. Nothing when the line is not a header.
std::optional<HeaderLine> parse_header_line(std::string_view line);

// host[:port] of a Host header.
bool is_valid_host(std::string_view text);
// Whether a comma-separated list holds the (lower-case) token.
bool list_has_token(std::string_view list, std::string_view token);
// Whether each element of a comma-separated list is a token or empty.
bool is_token_list(std::string_view list);
// x-request-id: 1 to 128 of [A-Za-z0-9_-].
bool is_valid_request_id(std::string_view text);

}  // namespace fathom::http
