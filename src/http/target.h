#pragma once
// The request target in origin form or, as clients of a proxy send it, in absolute form (RFC 9112, 3.2), decoded
// exactly once and refused unless it is already normal: what the router matches is what the client wrote, but for
// slashes. Several in a row are one, and one at the end is none, because base URLs are put together by hand
// ("http://host:30000/" + "/v1" + "/models/").
//
//   std::optional<Target> target = parse_target("/v1/models?limit=5");
//   std::optional<Target> target = parse_target("http://127.0.0.1:30000/v1/models");   // authority 127.0.0.1:30000
//
// Refused: other forms (authority, *), other schemes, "." and "..", empty segments with encoded slashes, encoded or
// plain backslashes, control characters and NUL (encoded or not), bad percent signs, text that is not UTF-8. An encoded
// slash is decoded, and the caller has to refuse it outside of a parameter. Pure function, thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::http {

struct Target {
  std::string path;
  // Where the path has a slash that the client wrote as %2F.
  size_t first_encoded_slash = std::string::npos;
  std::string authority;                                   // of the absolute form; else empty
  std::vector<std::pair<std::string, std::string>> query;  // in order, at most kMaxQueryFields
};
inline constexpr size_t kMaxQueryFields = 64;

std::optional<Target> parse_target(std::string_view target);
bool is_valid_utf8(std::string_view text);

}  // namespace fathom::http
