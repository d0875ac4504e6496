#pragma once
// Appends pieces of JSON to a string: what the streaming path writes, an event at a time, without building a
// tree first. The caller puts the brackets and commas.
//
//   out += R"({"text":)";  append_json(out, piece);  out += R"(,"count":)";  append_json(out, 3);  out += '}';
//
// Pure functions, thread-safe.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::answer {

// The text as a JSON string, quotes included. REQUIRES: valid UTF-8.
void append_json(std::string& out, std::string_view text);
// The inside of a JSON string, without quotes: pieces of one text can be appended one after the other.
void append_json_inside(std::string& out, std::string_view text);
// The shortest digits that read back as the same float; JSON has no infinities, so -inf is -9999 (as OpenAI
// writes it), and what is not a number is null.
void append_json(std::string& out, float value);

void append_json_int(std::string& out, int64_t value);
inline void append_json(std::string& out, std::integral auto value) {
  append_json_int(out, static_cast<int64_t>(value));
}

// "null" for an empty text.
void append_json_or_null(std::string& out, std::string_view text);

}  // namespace fathom::answer
