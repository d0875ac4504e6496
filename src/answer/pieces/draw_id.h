#pragma once
// Ids that nobody else has: 128 random bits.
//
//   draw_id("chatcmpl-")   // "chatcmpl-5f0c…", 32 hexadecimal digits after the prefix
//
// Thread-safe.

#include <string>
#include <string_view>

namespace fathom::answer {

std::string draw_id(std::string_view prefix);

}  // namespace fathom::answer
