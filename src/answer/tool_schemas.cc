#include "answer/tool_schemas.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/thread_cpu.h"
#include "grammar/dsml_calls.h"
#include "grammar/grammar.h"

namespace fathom::answer {
namespace {

// Looking at the schemas one by one may take as much together; those that are left then count as too large.
constexpr double kMaxCpuSeconds = 0.5;

constexpr std::string_view kNoMembers =
    R"({"type":"object","properties":{},"additionalProperties":false})";

// Something in the schema says which members an object may have. A list without names does not.
bool speaks_of_members(const json::Value& schema) {
  for (const char* const list : {"properties", "required"}) {
    const auto found = schema.find(list);
    if (found != schema.end() && !found->empty()) return true;
  }
  constexpr std::array<std::string_view, 17> kKeywords = {"additionalProperties",
                                                          "patternProperties",
                                                          "propertyNames",
                                                          "minProperties",
                                                          "maxProperties",
                                                          "dependentRequired",
                                                          "dependentSchemas",
                                                          "dependencies",
                                                          "unevaluatedProperties",
                                                          "allOf",
                                                          "anyOf",
                                                          "oneOf",
                                                          "not",
                                                          "if",
                                                          "$ref",
                                                          "enum",
                                                          "const"};
  return std::ranges::any_of(kKeywords, [&](std::string_view key) { return schema.contains(key); });
}

// A custom tool's arguments are {"input": "..."}: any text, or one that its grammar takes. Its form is never let go of.
grammar::Tool custom_tool_of(const json::Value& custom) {
  static constexpr std::string_view kAnyInput =
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false})";
  grammar::Tool tool{.name = custom.value("name", ""),
                     .parameters_schema = std::string(kAnyInput),
                     .strict = true};
  const auto format = custom.find("format");
  if (format == custom.end() || !format->contains("grammar")) return tool;
  const json::Value& grammar = (*format)["grammar"];
  std::string definition = grammar.value("definition", "");
  tool.input = grammar.value("syntax", "") == "regex" ? grammar::regex(std::move(definition))
                                                      : grammar::lark(std::move(definition));
  return tool;
}

grammar::Tool tool_of(const json::Value& function, bool follows_schema) {
  grammar::Tool tool{.name = function.value("name", ""), .parameters_schema = ""};
  if (!follows_schema) return tool;
  const auto strict = function.find("strict");
  tool.strict = strict != function.end() && *strict == json::Value(true);
  const auto parameters = function.find("parameters");
  const bool has_schema = parameters != function.end() && parameters->is_object();
  tool.parameters_schema = has_schema && speaks_of_members(*parameters) ? json::dump(*parameters)
                                                                        : std::string(kNoMembers);
  return tool;
}

grammar::Expression arguments_of(const grammar::Tool& tool,
                                 const std::optional<grammar::Marker>& dsml_mark) {
  if (dsml_mark) return grammar::dsml_calls(*dsml_mark, {tool}, {.required = true});
  return tool.input ? grammar::json_text_member("input", *tool.input)
                    : grammar::json_schema(tool.parameters_schema);
}

Status compiles(const grammar::Tool& tool, const std::optional<grammar::Marker>& dsml_mark) {
  const auto compiled = grammar::compile(arguments_of(tool, dsml_mark));
  if (compiled) return {};
  return Error{compiled.error().code,
               "the tool " + json::shown_text(tool.name) + ": " + compiled.error().message};
}

}  // namespace

std::vector<grammar::Tool> tools_of(const api::ToolConstraint& constraint) {
  std::vector<grammar::Tool> tools;
  for (const json::Value& value : *constraint.tools) {
    if (value.contains("custom")) {
      tools.push_back(custom_tool_of(value["custom"]));
      continue;
    }
    const json::Value& function = value.contains("function") ? value["function"] : value;
    tools.push_back(tool_of(function, constraint.follows_schemas));
  }
  return tools;
}

Status let_go_of_schemas(std::vector<grammar::Tool>& tools,
                         const std::optional<grammar::Marker>& dsml_mark) {
  const double start_seconds = thread_cpu_seconds();
  bool lets_go = false;
  for (grammar::Tool& tool : tools) {
    if (tool.parameters_schema.empty()) continue;
    if (thread_cpu_seconds() - start_seconds > kMaxCpuSeconds) {
      lets_go = false;
      break;
    }
    const Status status = compiles(tool, dsml_mark);
    if (status) continue;
    if (tool.strict) return status.error();
    tool.parameters_schema.clear();
    lets_go = true;
  }
  if (lets_go) return {};
  for (grammar::Tool& tool : tools) {
    if (!tool.strict) tool.parameters_schema.clear();
  }
  return {};
}

}  // namespace fathom::answer
