#pragma once
// JSON with limits: every document the program reads goes through parse(), which bounds size and depth
// and refuses duplicate keys, so no reader has to. Values keep the order of keys.
//
//   Result<json::Value> config = json::parse(text);
//   if (!config) return config.error();          // "line 3, column 7: duplicate key \"vocab_size\""
//
// Thread-safe (no state).

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/json_fwd.h"
#include "base/result.h"

// The library's own moves all values into a new list to free them: it allocates in a destructor, as much as the value
// takes, and ends the program when there is no memory. This one frees in place; what parse() makes is not deep.
template <>
inline void nlohmann::ordered_json::json_value::destroy(value_t kind) {
  const auto free_one = [](auto* value) {
    std::destroy_at(value);
    std::allocator<std::remove_pointer_t<decltype(value)>>().deallocate(value, 1);
  };
  switch (kind) {
    case value_t::object:
      return free_one(object);
    case value_t::array:
      return free_one(array);
    case value_t::string:
      return free_one(string);
    case value_t::binary:
      return free_one(binary);
    default:
      return;
  }
}

#ifdef FATHOM_IN_MODULE
// The library's comparisons with text make a value of it, and end the program when there is no memory for that:
// json::is_text() instead.
namespace nlohmann {
bool operator==(const ordered_json&, const char*) = delete;
bool operator!=(const ordered_json&, const char*) = delete;
}  // namespace nlohmann
#endif

namespace fathom::json {

// Strict RFC 8259 text in valid UTF-8. Errors name line and column and the rule.
Result<Value> parse(std::string_view text, const Limits& limits = {});
// One value within a text that is well-formed there; errors name its place in the whole text. Takes what the value
// needs from limits.max_value_bytes.
Result<Value> parse_part(std::string_view text, std::string_view part, Limits& limits);
// Of max_value_bytes.
Error too_many_values();
// Why the text is not well-formed, as parse() would say it, without building anything. REQUIRES: it is not.
Error syntax_error(std::string_view text, const Limits& limits);

// Whether it is a string, this one.
inline bool is_text(const Value& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

// The text at a key of an object, "" where there is none. It lives as long as the object.
std::string_view text_at(const Value& object, const char* key);

// Compact text; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string dump(const Value& value);
// A text from outside in an error: between quotes, on one line, control characters escaped, whole characters of at most
// kMaxShownBytes; of a longer one "..." stands behind the quotes.
inline constexpr size_t kMaxShownBytes = 64;
std::string shown_text(std::string_view text);
// A value in an error, as short: JSON text, or for what can be as large as its file what it is ("an object", "a list of
// 9 values").
std::string shown(const Value& value);

}  // namespace fathom::json
