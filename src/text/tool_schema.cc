#include "text/tool_schema.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/json.h"

namespace fathom::text {
namespace {

// As Python writes a float: the fewest digits that read back as it, plain from 1e-4 up to 1e16. The library's own
// digits are not always the fewest, and it has an exponent from 1e15 on.
void append_float(double value, std::string& out) {
  std::array<char, 32> digits;
  const double size = std::fabs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto written =
      std::to_chars(digits.data(), digits.data() + digits.size(), value,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view text(digits.data(), written.ptr);
  out += text;
  if (is_plain && text.find('.') == text.npos) out += ".0";
}

struct Separators {
  std::string_view of_items, of_keys;
};

void append_python(const json::Value& value, const Separators& separators, std::string& out) {
  if (value.is_number_float()) return append_float(value.get<double>(), out);
  if (!value.is_structured()) {
    out += json::dump(value);
    return;
  }
  out += value.is_object() ? '{' : '[';
  bool first = true;
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (!first) out += separators.of_items;
    first = false;
    if (value.is_object()) (out += json::dump(json::Value(it.key()))) += separators.of_keys;
    append_python(*it, separators, out);
  }
  out += value.is_object() ? '}' : ']';
}

Status validate_tool(const json::Value& tool, const std::string& where) {
  if (!tool.is_object()) return invalid_argument(where + ": must be an object");
  if (tool.contains("type") && !json::is_text(tool["type"], "function")) {
    return invalid_argument(where + ".type: is " + json::dump(tool["type"]) +
                            ", the only type is \"function\"");
  }
  if (tool.contains("function") && !tool["function"].is_object()) {
    return invalid_argument(where + ".function: must be an object");
  }
  const json::Value& function = tool_function(tool);
  const std::string inner = tool.contains("function") ? where + ".function" : where;
  if (!function.contains("name") || !function["name"].is_string() ||
      function["name"].get_ref<const std::string&>().empty()) {
    return invalid_argument(inner + ".name: must be a string that is not empty");
  }
  if (function.contains("description") && !function["description"].is_string() &&
      !function["description"].is_null()) {
    return invalid_argument(inner + ".description: must be a string");
  }
  if (function.contains("parameters") && !function["parameters"].is_object() &&
      !function["parameters"].is_null()) {
    return invalid_argument(inner + ".parameters: must be a JSON schema, that is an object");
  }
  return {};
}

}  // namespace

Status validate_tools(const json::Value& tools) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return invalid_argument("tools: must be an array");
  for (size_t i = 0; i < tools.size(); ++i) {
    if (Status tool = validate_tool(tools[i], "tools[" + std::to_string(i) + "]"); !tool)
      return tool;
  }
  return {};
}

const json::Value& tool_function(const json::Value& tool) {
  const auto function = tool.find("function");
  return function == tool.end() ? tool : *function;
}

std::string tool_name(const json::Value& tool) {
  return tool_function(tool)["name"].get<std::string>();
}

std::string tool_description(const json::Value& tool) {
  const json::Value& function = tool_function(tool);
  const auto description = function.find("description");
  const bool has_one = description != function.end() && description->is_string();
  return has_one ? description->get<std::string>() : "";
}

json::Value tool_parameters(const json::Value& tool) {
  const json::Value& function = tool_function(tool);
  const auto parameters = function.find("parameters");
  if (parameters != function.end() && parameters->is_object()) return *parameters;
  return json::Value{{"type", "object"}, {"properties", json::Value::object()}};
}

std::string spaced_json(const json::Value& value) {
  std::string out;
  append_python(value, {", ", ": "}, out);
  return out;
}

std::string compact_json(const json::Value& value) {
  std::string out;
  append_python(value, {",", ":"}, out);
  return out;
}

}  // namespace fathom::text
