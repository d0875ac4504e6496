#pragma once
// What a call may name.
//
//   if (!is_function_name(name)) treat_as_text();
//
// Pure functions, thread-safe.

#include <string_view>

namespace fathom::text {

inline constexpr size_t kMaxNameBytes = 256;

// Of what a client may have called its tool all that no form of calls ends a name with, and no space: "server:tool@2".
bool is_name_byte(char c);
// 1 to kMaxNameBytes of them, valid UTF-8.
bool is_function_name(std::string_view name);

}  // namespace fathom::text
