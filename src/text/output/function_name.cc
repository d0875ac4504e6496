#include "text/output/function_name.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "text/output/json_object_machine.h"

namespace fathom::text {

bool is_name_byte(char c) {
  constexpr std::string_view kOthers = " \"\\<>{}`\x7F";
  return static_cast<uint8_t>(c) >= 0x20 && kOthers.find(c) == kOthers.npos;
}

bool is_function_name(std::string_view name) {
  // Names beyond ASCII must be valid UTF-8; the JSON machine already knows how to tell.
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_name_byte) &&
         is_json_object("{\"" + std::string(name) + "\":0}");
}

}  // namespace fathom::text
