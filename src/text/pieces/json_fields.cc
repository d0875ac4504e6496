#include "text/pieces/json_fields.h"

#include "base/json.h"

namespace fathom::text {

std::string type_name(const json::Value& value) {
  if (!value.is_object()) return "(none)";
  const auto type = value.find("type");
  return type != value.end() && type->is_string()
             ? json::shown_text(type->get_ref<const std::string&>())
             : "(none)";
}

std::string in_quotes(std::string_view value) {
  return json::dump(json::Value(std::string(value.substr(0, 64))));
}

Result<bool> bool_field(const json::Value& object, const char* key, bool fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_boolean()) return invalid_argument(std::string(key) + " must be true or false");
  return found->get<bool>();
}

}  // namespace fathom::text
