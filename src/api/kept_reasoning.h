#pragma once
// Reasoning that a client keeps for the next request without reading it: base64 of its text. It is the
// `encrypted_content` of a reasoning item (Responses), and the `signature` of a thinking block whose text was omitted
// (Messages). Nothing is secret: the same client may ask for the text.
//
//   keep_reasoning("new")               // "bmV3"
//   kept_reasoning("bmV3")              // "new"
//   kept_reasoning("gAAAAAB/")          // "": of another server, no text
//
// Pure, thread-safe.

#include <string>
#include <string_view>

namespace fathom::api {

std::string keep_reasoning(std::string_view text);
// Empty where `kept` is not base64 of UTF-8: what another server keeps to itself.
std::string kept_reasoning(std::string_view kept);

}  // namespace fathom::api
