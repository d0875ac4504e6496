#pragma once
// The request target in origin form, decoded exactly once and refused unless it is already normal: what the
// router matches is what the client wrote.
//
//   std::optional<Target> target = parse_target("/v1/models?limit=5");
//
// Refused: other forms (absolute, authority, *), empty segments ("//"), "." and "..", encoded or plain
// backslashes, encoded slashes, control characters and NUL (encoded or not), bad percent signs, text that is
// not UTF-8. Pure function, thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::http {

struct Target {
  std::string path;
  std::vector<std::pair<std::string, std::string>> query;  // in order, at most kMaxQueryFields
};
inline constexpr size_t kMaxQueryFields = 64;

std::optional<Target> parse_target(std::string_view target);
bool is_valid_utf8(std::string_view text);

}  // namespace fathom::http
