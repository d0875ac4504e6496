#pragma once
// Small typed reads from a JSON object, with the error line of each.
//
//   const Result<bool> special = bool_field(token, "special", false);
//
// Pure functions, thread-safe.

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::text {

// The string at "type" in quotes, or "(none)" where there is no such string.
std::string type_name(const json::Value& value);

// As JSON text. Long values are cut, so that an error line stays a line.
std::string in_quotes(std::string_view value);

// The boolean at `key`, `fallback` where the key is missing. REQUIRES: object.is_object().
Result<bool> bool_field(const json::Value& object, const char* key, bool fallback);

}  // namespace fathom::text
