#pragma once
// Base64 of RFC 4648, standard alphabet.
//
//   decode_base64("aGk=")  ->  "hi"
//
// Pure function, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace fathom {

// Padded or not; nothing where a character is not of the alphabet.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace fathom
