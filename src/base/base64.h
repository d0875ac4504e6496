#pragma once
// Base64 with the standard alphabet (RFC 4648, section 4).
//
//   encode_base64("hi");        // "aGk="
//   decode_base64("aGk");       // "hi": padded or not
//
// Pure, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace fathom {

std::string encode_base64(std::string_view bytes);
// Nothing: a character of no digit.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace fathom
