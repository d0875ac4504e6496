#include "api/custom_tools.h"

#include <algorithm>
#include <utility>

#include "api/tables/custom_tool_fields.h"
#include "api/tables/response_item_fields.h"
#include "base/json.h"
#include "text/tool_schema.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxWordBytes = 64;

std::string read_name(FieldReader& tool) {
  tool.require("name");
  const std::optional<std::string> name = tool.text("name", kMaxToolNameBytes);
  if (name && name->empty()) tool.fail("name", "a string that is not empty");
  return name.value_or("");
}

// {"syntax", "definition"}
json::Value read_grammar_text(FieldReader& grammar, const ServedModel& model) {
  grammar.require("syntax");
  grammar.require("definition");
  const std::string syntax = grammar.text("syntax", kMaxWordBytes).value_or("");
  const auto max_bytes = static_cast<size_t>(model.limits.max_grammar_bytes);
  const std::string definition = grammar.text("definition", max_bytes).value_or("");
  if (grammar.problem()) return {};
  if (syntax != "lark" && syntax != "regex") grammar.fail("syntax", "lark or regex");
  if (definition.empty()) grammar.fail("definition", "a string that is not empty");
  return {{"syntax", syntax}, {"definition", definition}};
}

// Whether a format is a grammar, which `keys` say.
bool is_grammar(FieldReader& format, std::initializer_list<const char*> keys) {
  format.require("type");
  const std::string type = format.text("type", kMaxWordBytes).value_or("");
  if (format.problem() || type == "grammar") return type == "grammar";
  if (type != "text") format.fail("type", "text or grammar");
  for (const char* key : keys) {
    if (format.find(key) == nullptr) continue;
    format.fail_with(key, format.path_of(key) + " belongs to the type grammar");
  }
  return false;
}

json::Value custom_tool(const std::string& name, const std::optional<std::string>& description,
                        json::Value grammar) {
  json::Value custom = {{"name", name}};
  if (description) custom["description"] = *description;
  if (grammar.is_object()) {
    custom["format"] = {{"type", "grammar"}, {"grammar", std::move(grammar)}};
  }
  return {{"type", "custom"}, {"custom", std::move(custom)}};
}

const json::Value& custom_of(const json::Value& tool) { return tool["custom"]; }

// A function has no place for the grammar, and the model writes better what it knows the form of.
std::string description_of(const json::Value& custom) {
  std::string text = custom.value("description", "");
  const auto format = custom.find("format");
  if (format == custom.end()) return text;
  const json::Value& grammar = (*format)["grammar"];
  const bool is_regex = json::is_text(grammar["syntax"], "regex");
  if (!text.empty()) text += "\n\n";
  text += is_regex ? "The input matches this regular expression:\n"
                   : "The input follows this grammar (Lark):\n";
  return text + grammar["definition"].get<std::string>();
}

json::Value shown_tool(const json::Value& tool) {
  if (!is_custom_tool(tool)) return tool;
  const json::Value& custom = custom_of(tool);
  json::Value function = {{"name", custom["name"]}};
  if (std::string description = description_of(custom); !description.empty()) {
    function["description"] = std::move(description);
  }
  function["parameters"] = {{"type", "object"},
                            {"properties", {{kInputKey, {{"type", "string"}}}}},
                            {"required", json::Value::array({kInputKey})}};
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

json::Value read_custom_tool(const json::Value& inner, const std::string& path,
                             const ServedModel& model, FieldProblem& problem) {
  FieldReader tool(inner, path, custom_tool_fields(), problem);
  const std::string name = read_name(tool);
  const std::optional<std::string> description = tool.text("description", SIZE_MAX);
  json::Value grammar;
  if (const json::Value* value = tool.object("format")) {
    FieldReader format(*value, tool.path_of("format"), custom_format_fields(), problem);
    if (is_grammar(format, {"grammar"})) {
      format.require("grammar");
      if (const json::Value* text = format.object("grammar")) {
        FieldReader reader(*text, format.path_of("grammar"), custom_grammar_fields(), problem);
        grammar = read_grammar_text(reader, model);
      }
    }
  }
  if (problem) return {};
  return custom_tool(name, description, std::move(grammar));
}

json::Value read_flat_custom_tool(const json::Value& flat, const std::string& path,
                                  const ServedModel& model, FieldProblem& problem) {
  FieldReader tool(flat, path, flat_tool_fields(), problem);
  const std::string name = read_name(tool);
  const std::optional<std::string> description = tool.text("description", SIZE_MAX);
  json::Value grammar;
  if (const json::Value* value = tool.object("format")) {
    FieldReader format(*value, tool.path_of("format"), flat_custom_format_fields(), problem);
    if (is_grammar(format, {"syntax", "definition"})) grammar = read_grammar_text(format, model);
  }
  if (problem) return {};
  return custom_tool(name, description, std::move(grammar));
}

bool is_custom_tool(const json::Value& tool) {
  const auto type = tool.find("type");
  return type != tool.end() && json::is_text(*type, "custom");
}

bool has_grammar(const json::Value& custom_tool) {
  return custom_of(custom_tool).contains("format");
}

std::string offered_name(const json::Value& tool) {
  return is_custom_tool(tool) ? custom_of(tool)["name"].get<std::string>() : text::tool_name(tool);
}

void set_offered_name(json::Value& tool, const std::string& name) {
  if (is_custom_tool(tool)) {
    tool["custom"]["name"] = name;
  } else if (tool.contains("function")) {
    tool["function"]["name"] = name;
  } else {
    tool["name"] = name;
  }
}

json::Value shown_tools(const json::Value& tools) {
  json::Value shown = json::Value::array();
  for (const json::Value& tool : tools) shown.push_back(shown_tool(tool));
  return shown;
}

ToolKinds kinds_of(const json::Value& tools) {
  ToolKinds kinds;
  for (const json::Value& tool : tools) {
    if (!is_custom_tool(tool)) continue;
    std::string name = offered_name(tool);
    kinds.emplace(name, ToolKind{.is_custom = true, .name = name, .name_space = ""});
  }
  return kinds;
}

std::string arguments_of_input(std::string_view input) {
  return text::spaced_json(json::Value{{kInputKey, input}});
}

}  // namespace fathom::api
