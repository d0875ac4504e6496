#pragma once
// Half a surrogate pair as an escape in a JSON text ("cut \ud83d"): RFC 8259 (section 8.2) allows it, and it stands for
// no character. Clients that cut texts in the middle of an emoji write it, and go on to send it with every request.
//
//   if (const auto mended = json::with_whole_pairs(text)) parse(*mended);    // "cut \ufffd"
//
// Pure, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace fathom::json {

// The text with \ufffd, which is as long, for each escape of half a pair; nothing where there is none. Linear; says
// nothing about whether the text is JSON.
std::optional<std::string> with_whole_pairs(std::string_view text);

}  // namespace fathom::json
