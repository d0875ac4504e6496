#include "api/message_tools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/client_tools.h"
#include "api/tables/field_check.h"
#include "api/tables/messages_fields.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxTypeBytes = 64;

constexpr size_t kMaxCallers = 64;

// Only a program on a server may call it.
bool is_hidden(FieldReader& tool) {
  const json::Value* callers = tool.array("allowed_callers", kMaxCallers);
  return callers != nullptr && !callers->empty() &&
         std::ranges::none_of(
             *callers, [](const json::Value& caller) { return json::is_text(caller, "direct"); });
}

class ToolReader {
 public:
  ToolReader(FieldProblem& problem, MessageTools& tools) : problem_(problem), tools_(tools) {}

  void read(const json::Value& value, const std::string& path) {
    if (!value.is_object()) {
      return problem_.set(broken_rule(path, value, "an object with name and input_schema"));
    }
    FieldReader tool(value, path, problem_);
    const std::string type = tool.text("type", kMaxTypeBytes).value_or("custom");
    const std::optional<std::string> name = tool.text("name", kMaxNameBytes);
    const bool is_another_servers = is_hidden(tool);
    if (problem_) return;
    std::optional<ClientTool> known = client_tool(type);
    const bool has_schema = type == "custom" || value.contains("input_schema");
    if ((!known && !has_schema) || is_another_servers) {
      problem_.skip_tool(type);
      tools_.left_out.emplace(name.value_or(""), type);
      return;
    }
    check_names(value, path, message_tool_fields(), problem_);
    tool.require("name");
    if (name && name->empty()) tool.fail("name", "a string that is not empty");
    add(tool, name.value_or(""), std::move(known));
  }

 private:
  void add(FieldReader& tool, const std::string& name, std::optional<ClientTool> known) {
    const std::optional<bool> is_strict = tool.boolean("strict");
    const std::optional<std::string> description = tool.text("description", SIZE_MAX);
    json::Value function = {{"name", name}};
    if (known) {
      function["description"] = description.value_or(known->description);
      function["parameters"] = std::move(known->input_schema);
    } else {
      const json::Value* schema = tool.object("input_schema");
      tool.require("input_schema");
      if (description) function["description"] = *description;
      if (schema != nullptr) function["parameters"] = *schema;
    }
    if (is_strict) function["strict"] = *is_strict;
    if (problem_) return;
    tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }

  FieldProblem& problem_;
  MessageTools& tools_;
};

}  // namespace

MessageTools read_message_tools(FieldReader& reader, const ServedModel& model) {
  MessageTools read;
  const json::Value* tools = reader.array("tools", static_cast<size_t>(model.limits.max_tools));
  ToolReader each(reader.problem(), read);
  for (size_t i = 0; tools != nullptr && i < tools->size() && !reader.problem(); ++i) {
    each.read((*tools)[i], element_path("tools", i));
  }
  return read;
}

void check_is_offered(const ToolChoice& choice, const MessageTools& tools, FieldReader& reader) {
  for (const std::string& name : choice.names) {
    const auto found = tools.left_out.find(name);
    if (found == tools.left_out.end()) continue;
    reader.fail_with("tool_choice", "tool_choice names " + shown(json::Value(name)) +
                                        ", but the model is not offered tools of the type " +
                                        shown(json::Value(found->second)) +
                                        ": this server runs no tools of its own");
  }
}

}  // namespace fathom::api
