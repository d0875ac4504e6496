#include "tests/grammar/schema_validator.h"

#include <cmath>
#include <regex>

namespace fathom::grammar::tests {
namespace {

using json::Value;

bool has_type(const Value& value, const std::string& type) {
  if (type == "integer") {
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }
  if (type == "number") return value.is_number();
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null());
}

size_t characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string check_scalar(const Value& schema, const Value& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (schema.contains("minLength") && characters(text) < schema["minLength"].get<size_t>())
      return "minLength";
    if (schema.contains("maxLength") && characters(text) > schema["maxLength"].get<size_t>())
      return "maxLength";
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>()))) {
      return "pattern";
    }
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    const auto bound = [&](const char* key) { return schema[key].get<double>(); };
    if (schema.contains("minimum") && number < bound("minimum")) return "minimum";
    if (schema.contains("maximum") && number > bound("maximum")) return "maximum";
    if (schema.contains("exclusiveMinimum") && number <= bound("exclusiveMinimum"))
      return "exclusiveMinimum";
    if (schema.contains("exclusiveMaximum") && number >= bound("exclusiveMaximum"))
      return "exclusiveMaximum";
    if (schema.contains("multipleOf")) {
      const double quotient = number / bound("multipleOf");
      if (std::fabs(quotient - std::round(quotient)) > 1e-9) return "multipleOf";
    }
  }
  return "";
}

std::string check_array(const Value& root, const Value& schema, const Value& value) {
  if (schema.contains("minItems") && value.size() < schema["minItems"].get<size_t>())
    return "minItems";
  if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>())
    return "maxItems";
  const Value prefix = schema.contains("prefixItems") ? schema["prefixItems"] : Value::array();
  for (size_t i = 0; i < value.size(); ++i) {
    std::string why;
    if (i < prefix.size()) {
      why = violation(root, prefix[i], value[i]);
    } else if (schema.contains("items")) {
      why = violation(root, schema["items"], value[i]);
    }
    if (!why.empty()) return "items/" + why;
    for (size_t j = 0; j < i && schema.value("uniqueItems", false); ++j) {
      if (value[i] == value[j]) return "uniqueItems";
    }
  }
  if (schema.contains("contains")) {
    size_t num_found = 0;
    for (const Value& item : value) num_found += violation(root, schema["contains"], item).empty();
    if (num_found < schema.value("minContains", size_t{1})) return "contains";
    if (schema.contains("maxContains") && num_found > schema["maxContains"].get<size_t>())
      return "maxContains";
  }
  return "";
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

// Members by name, pattern or neither.
std::string check_member(const Value& root, const Value& schema, const std::string& name,
                         const Value& member) {
  bool is_known = false;
  std::string why;
  if (schema.contains("properties") && schema["properties"].contains(name)) {
    is_known = true;
    why = violation(root, schema["properties"][name], member);
  }
  const Value patterns = schema.value("patternProperties", Value::object());
  for (const auto& [pattern, value] : patterns.items()) {
    if (!why.empty() || !matches(name, pattern)) continue;
    is_known = true;
    why = violation(root, value, member);
  }
  if (why.empty() && !is_known && schema.contains("additionalProperties")) {
    why = violation(root, schema["additionalProperties"], member);
  }
  if (why.empty() && schema.contains("propertyNames"))
    why = violation(root, schema["propertyNames"], name);
  return why;
}

std::string check_object(const Value& root, const Value& schema, const Value& value) {
  if (schema.contains("required")) {
    for (const Value& name : schema["required"]) {
      if (!value.contains(name.get<std::string>())) return "required " + name.dump();
    }
  }
  if (value.size() < schema.value("minProperties", size_t{0})) return "minProperties";
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"].get<size_t>())
    return "maxProperties";
  const Value dependents = schema.value("dependencies", Value::object());
  for (const auto& [name, dependent] : dependents.items()) {
    if (!value.contains(name)) continue;
    const Value rule = dependent.is_array() ? Value{{"required", dependent}} : dependent;
    if (!violation(root, rule, value).empty()) return "dependencies " + name;
  }
  for (const auto& [name, member] : value.items()) {
    const std::string why = check_member(root, schema, name, member);
    if (!why.empty()) return name + "/" + why;
  }
  return "";
}

std::string check_combined(const Value& root, const Value& schema, const Value& value) {
  if (schema.contains("$ref")) {
    const Value target =
        root.at(nlohmann::ordered_json::json_pointer(schema["$ref"].get<std::string>().substr(1)));
    const std::string why = violation(root, target, value);
    if (!why.empty()) return why;
  }
  if (schema.contains("allOf")) {
    for (const Value& part : schema["allOf"]) {
      const std::string why = violation(root, part, value);
      if (!why.empty()) return why;
    }
  }
  if (schema.contains("not") && violation(root, schema["not"], value).empty()) return "not";
  if (schema.contains("if")) {
    const char* const branch = violation(root, schema["if"], value).empty() ? "then" : "else";
    if (schema.contains(branch)) {
      const std::string why = violation(root, schema[branch], value);
      if (!why.empty()) return branch + ("/" + why);
    }
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword)) continue;
    int num_fitting = 0;
    for (const Value& part : schema[keyword]) num_fitting += violation(root, part, value).empty();
    if (num_fitting == 0 || (keyword == std::string("oneOf") && num_fitting > 1)) return keyword;
  }
  return "";
}

}  // namespace

std::string violation(const Value& root, const Value& schema, const Value& value) {
  if (schema == Value(true)) return "";
  if (schema == Value(false)) return "false";
  if (schema.contains("nullable") && schema["nullable"] == Value(true) && value.is_null())
    return "";
  if (schema.contains("type")) {
    const Value types = schema["type"].is_array() ? schema["type"] : Value::array({schema["type"]});
    bool fits = false;
    for (const Value& type : types) fits |= has_type(value, type.get<std::string>());
    if (!fits) return "type";
  }
  if (schema.contains("const") && schema["const"] != value) return "const";
  if (schema.contains("enum")) {
    bool fits = false;
    for (const Value& one : schema["enum"]) fits |= one == value;
    if (!fits) return "enum";
  }
  std::string why = check_combined(root, schema, value);
  if (why.empty()) why = check_scalar(schema, value);
  if (why.empty() && value.is_array()) why = check_array(root, schema, value);
  if (why.empty() && value.is_object()) why = check_object(root, schema, value);
  return why;
}

}  // namespace fathom::grammar::tests
