#include "server/requests/tool_fields.h"

#include <algorithm>

#include "text/tool_schema.h"

namespace fathom::server {
namespace {

using ToolKind = ToolConstraint::Kind;

constexpr size_t kMaxToolNameBytes = 256;

enum class ToolMode { kAuto, kNone, kRequired, kNamed };

struct ToolChoice {
  ToolMode mode = ToolMode::kAuto;
  std::string name;
};

ToolChoice read_named(FieldReader& reader, const json::Value& value) {
  FieldReader choice(value, reader.path_of("tool_choice"), reader.problem());
  const std::optional<std::string> type = choice.text("type", kMaxToolNameBytes);
  if (type && type != "function") choice.fail("type", "function");
  const json::Value* function = choice.object("function");
  if (function == nullptr) {
    choice.fail_with("function", choice.path_of("function") + " is missing");
    return {};
  }
  FieldReader inner(*function, choice.path_of("function"), reader.problem());
  const std::optional<std::string> name = inner.text("name", kMaxToolNameBytes);
  if (!name) inner.fail_with("name", inner.path_of("name") + " is missing");
  return {.mode = ToolMode::kNamed, .name = name.value_or("")};
}

ToolChoice read_choice(FieldReader& reader) {
  const json::Value* value = reader.find("tool_choice");
  if (value == nullptr || json::is_text(*value, "auto")) return {};
  if (json::is_text(*value, "none")) return {.mode = ToolMode::kNone, .name = ""};
  if (json::is_text(*value, "required")) return {.mode = ToolMode::kRequired, .name = ""};
  if (value->is_object()) return read_named(reader, *value);
  reader.fail("tool_choice", "auto, none, required or {\"type\": \"function\", \"function\": ...}");
  return {};
}

bool is_strict(const json::Value& tool) {
  const json::Value& function = text::tool_function(tool);
  const auto strict = function.find("strict");
  return strict != function.end() && strict->is_boolean() && strict->get<bool>();
}

// The inner objects; of one name only when there is a name.
json::Value functions_of(const json::Value& tools, const std::string& name) {
  json::Value functions = json::Value::array();
  for (const json::Value& tool : tools) {
    if (name.empty() || text::tool_name(tool) == name) {
      functions.push_back(text::tool_function(tool));
    }
  }
  return functions;
}

}  // namespace

ToolUse read_tool_use(FieldReader& reader, const ServedModel& model, const json::Value& tools) {
  const std::optional<bool> parallel = reader.boolean("parallel_tool_calls");
  const ToolChoice choice = read_choice(reader);
  if (reader.problem()) return {};
  const bool is_forced = choice.mode == ToolMode::kRequired || choice.mode == ToolMode::kNamed;
  if (tools.empty()) {
    if (is_forced) {
      reader.fail_with("tool_choice", "tool_choice asks for a call, but there are no tools");
    }
    return {};
  }
  if (choice.mode == ToolMode::kNone) return {};
  ToolUse use{.shows_tools = true, .constraint = {}};
  const bool is_guided = model.constrain_tool_calls || !parallel.value_or(true) ||
                         std::ranges::any_of(tools, is_strict);
  if (!is_forced && !is_guided) return use;
  use.constraint = {.kind = is_forced ? ToolKind::kRequired : ToolKind::kOptional,
                    .tools = functions_of(tools, choice.name),
                    // A named function is called once, as OpenAI's API does it.
                    .parallel = parallel.value_or(true) && choice.mode != ToolMode::kNamed};
  if (use.constraint.tools.empty()) {
    reader.fail_with("tool_choice", "tool_choice names " + shown(json::Value(choice.name)) +
                                        ", which is none of the tools");
  }
  return use;
}

}  // namespace fathom::server
