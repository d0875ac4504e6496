#include "api/tool_fields.h"

#include <algorithm>
#include <set>

#include "api/custom_tools.h"
#include "api/legacy_functions.h"
#include "api/tables/custom_tool_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "text/output/function_name.h"
#include "text/tool_schema.h"

namespace fathom::api {
namespace {

using CallKind = ToolConstraint::Kind;

// The name in {"type": "function", "function": {"name": ...}}, or the same with custom.
std::string read_chosen(FieldReader& reader) {
  const std::optional<std::string> type = reader.text("type", kMaxToolNameBytes);
  if (type && type != "function" && type != "custom") reader.fail("type", "function or custom");
  const bool is_custom = type == "custom";
  const char* const key = is_custom ? "custom" : "function";
  const char* const other = is_custom ? "function" : "custom";
  if (reader.find(other) != nullptr) {
    reader.fail_with(other, reader.path_of(other) + " belongs to another type");
  }
  const json::Value* chosen = reader.object(key);
  if (chosen == nullptr) {
    reader.fail_missing(key);
    return {};
  }
  FieldReader inner(*chosen, reader.path_of(key),
                    is_custom ? chosen_custom_fields() : chosen_function_fields(),
                    reader.problem());
  const std::optional<std::string> name = inner.text("name", kMaxToolNameBytes);
  if (!name) inner.fail_missing("name");
  return name.value_or("");
}

// {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [functions]}}
ToolChoice read_allowed(FieldReader& choice, int max_tools) {
  const json::Value* allowed = choice.object("allowed_tools");
  if (allowed == nullptr) {
    choice.fail_missing("allowed_tools");
    return {};
  }
  FieldReader reader(*allowed, choice.path_of("allowed_tools"), allowed_tools_fields(),
                     choice.problem());
  ToolChoice read{.mode = ToolMode::kAuto, .is_some = true, .names = {}};
  const std::optional<std::string> mode = reader.text("mode", kMaxToolNameBytes);
  if (!mode) reader.fail_missing("mode");
  if (mode && mode != "auto" && mode != "required") reader.fail("mode", "auto or required");
  if (mode == "required") read.mode = ToolMode::kRequired;
  const json::Value* tools = reader.array("tools", static_cast<size_t>(max_tools));
  if (tools == nullptr || tools->empty()) {
    reader.fail_with("tools", reader.path_of("tools") + " must name at least one of the tools");
    return {};
  }
  for (size_t i = 0; i < tools->size() && !reader.problem(); ++i) {
    const std::string path = element_path(reader.path_of("tools"), i);
    if (!(*tools)[i].is_object()) {
      reader.problem().set(broken_rule(path, (*tools)[i], "an object"));
      return {};
    }
    FieldReader tool((*tools)[i], path, chosen_tool_fields(), reader.problem());
    read.names.push_back(read_chosen(tool));
  }
  return read;
}

ToolChoice read_choice(FieldReader& reader, const ServedModel& model) {
  const json::Value* value = reader.find("tool_choice");
  if (value == nullptr || json::is_text(*value, "auto")) return {};
  if (json::is_text(*value, "none")) return {.mode = ToolMode::kNone, .names = {}};
  if (json::is_text(*value, "required")) return {.mode = ToolMode::kRequired, .names = {}};
  if (!value->is_object()) {
    reader.fail("tool_choice",
                "auto, none, required or an object of the type function, custom or allowed_tools");
    return {};
  }
  FieldReader choice(*value, reader.path_of("tool_choice"), tool_choice_fields(), reader.problem());
  const std::optional<std::string> type = choice.text("type", kMaxToolNameBytes);
  const bool is_allowed = type == "allowed_tools";
  if (type && !is_allowed && type != "function" && type != "custom") {
    choice.fail("type", "function, custom or allowed_tools");
  }
  for (const char* other : {"function", "custom", "allowed_tools"}) {
    if (type.value_or("function") == other || choice.find(other) == nullptr) continue;
    choice.fail_with(other, choice.path_of(other) + " belongs to another type of tool_choice");
  }
  if (is_allowed) return read_allowed(choice, model.limits.max_tools);
  return {.mode = ToolMode::kNamed, .is_some = true, .names = {read_chosen(choice)}};
}

// Whether its calls have a form that they always keep.
bool is_strict(const json::Value& tool) {
  if (is_custom_tool(tool)) return has_grammar(tool);
  const json::Value& function = text::tool_function(tool);
  const auto strict = function.find("strict");
  return strict != function.end() && strict->is_boolean() && strict->get<bool>();
}

// A call by such a name would not be read.
void check_tool_names(FieldReader& reader, const json::Value& tools) {
  for (const json::Value& tool : tools) {
    const std::string name = offered_name(tool);
    if (name.empty() || text::is_function_name(name)) continue;
    return reader.fail_with(
        "tools", "the tool " + json::shown_text(name) +
                     " could not be called: a name has at most " +
                     std::to_string(text::kMaxNameBytes) +
                     " bytes and no space, control character, backslash or any of \"`<>{}");
  }
}

// The tools that may be called: of functions the inner objects. A name that none of them has is a problem.
json::Value callable_tools(FieldReader& reader, const json::Value& tools,
                           const ToolChoice& choice) {
  std::set<std::string> known;
  for (const json::Value& tool : tools) known.insert(offered_name(tool));
  for (const std::string& name : choice.names) {
    if (!known.contains(name)) {
      reader.fail_with(choice.field, choice.field + " names " + shown(json::Value(name)) +
                                         ", which is none of the tools");
    }
  }
  const std::set<std::string> chosen(choice.names.begin(), choice.names.end());
  json::Value callable = json::Value::array();
  for (const json::Value& tool : tools) {
    if (!choice.is_some || chosen.contains(offered_name(tool))) {
      callable.push_back(is_custom_tool(tool) ? tool : text::tool_function(tool));
    }
  }
  return callable;
}

}  // namespace

ToolUse use_tools(FieldReader& reader, const ServedModel& model, const json::Value& tools,
                  const ToolChoice& choice, bool has_output_form) {
  const bool is_forced = choice.mode == ToolMode::kRequired || choice.mode == ToolMode::kNamed;
  if (tools.empty()) {
    if (is_forced || choice.is_some) {
      reader.fail_with("tool_choice", "tool_choice asks for a call, but there are no tools");
    }
    return {};
  }
  if (choice.mode == ToolMode::kNone) return {};
  check_tool_names(reader, tools);
  ToolUse use{.shows_tools = true, .constraint = {}};
  const bool is_parallel = choice.parallel.value_or(true);
  const bool is_guided =
      model.constrain_tool_calls || !is_parallel || std::ranges::any_of(tools, is_strict);
  if (!is_forced && !is_guided && !choice.is_some && !has_output_form) return use;
  use.constraint = {.kind = is_forced ? CallKind::kRequired : CallKind::kOptional,
                    .tools = callable_tools(reader, tools, choice),
                    // A named function is called once, as OpenAI's API does it.
                    .parallel = is_parallel && choice.mode != ToolMode::kNamed,
                    .follows_schemas = is_forced || is_guided};
  return use;
}

ToolUse read_tool_use(FieldReader& reader, const ServedModel& model, const json::Value& tools,
                      bool has_output_form) {
  const std::optional<bool> parallel = reader.boolean("parallel_tool_calls");
  if (has_functions(reader))
    return use_tools(reader, model, tools, read_function_call(reader), has_output_form);
  ToolChoice choice = read_choice(reader, model);
  if (reader.problem()) return {};
  choice.parallel = parallel;
  return use_tools(reader, model, tools, choice, has_output_form);
}

}  // namespace fathom::api
