#include "api/responses/response_tools.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/tables/field_check.h"
#include "api/tables/response_item_fields.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxToolTypeBytes = 64;
constexpr size_t kMaxNameBytes = 256;

bool names_one_tool(std::string_view type) { return type == "function" || type == "custom"; }

class ResponseToolReader {
 public:
  ResponseToolReader(FieldReader& body, const ServedModel& model)
      : model_(model), problem_(body.problem()), body_(body) {}

  FlatTools read() && {
    const json::Value* tools = body_.array("tools", max_tools());
    if (tools != nullptr) read_list(*tools, "tools", Space{});
    return std::move(read_);
  }

 private:
  // A namespace, or none.
  struct Space {
    std::string name;
    std::string description;  // shown with the first of its tools
  };

  size_t max_tools() const { return static_cast<size_t>(model_.limits.max_tools); }

  void read_list(const json::Value& list, const std::string& path, Space space) {
    for (size_t i = 0; i < list.size() && !problem_; ++i) {
      read_tool(list[i], element_path(path, i), space);
    }
  }

  void read_tool(const json::Value& value, const std::string& path, Space& space) {
    if (!value.is_object()) return problem_.set(broken_rule(path, value, "an object with a type"));
    FieldReader tool(value, path, problem_);
    tool.require("type");
    const std::string type = tool.text("type", kMaxToolTypeBytes).value_or("");
    if (problem_) return;
    if (type == "function") {
      check_kind(tool, value, path, {"format", "tools"});
      add(read_function(tool), path, space);
    } else if (type == "custom") {
      check_kind(tool, value, path, {"parameters", "strict", "tools"});
      add(read_flat_custom_tool(value, path, model_, problem_), path, space);
    } else if (type == "namespace" && space.name.empty()) {
      check_kind(tool, value, path, {"parameters", "strict", "format"});
      read_namespace(tool, path);
    } else {
      problem_.skip_tool(type);
      read_.left_out.insert(type);
    }
  }

  void check_kind(FieldReader& tool, const json::Value& value, const std::string& path,
                  std::initializer_list<const char*> others) {
    check_names(value, path, flat_tool_fields(), problem_);
    for (const char* other : others) {
      if (tool.find(other) == nullptr) continue;
      tool.fail_with(other, tool.path_of(other) + " belongs to another type of tools");
    }
  }

  std::string read_name(FieldReader& tool) {
    tool.require("name");
    const std::optional<std::string> name = tool.text("name", kMaxNameBytes);
    if (name && name->empty()) tool.fail("name", "a string that is not empty");
    return name.value_or("");
  }

  json::Value read_function(FieldReader& tool) {
    json::Value function = {{"name", read_name(tool)}};
    if (const auto text = tool.text("description", SIZE_MAX)) function["description"] = *text;
    if (const json::Value* schema = tool.object("parameters")) function["parameters"] = *schema;
    if (const auto is_strict = tool.boolean("strict")) function["strict"] = *is_strict;
    return function;
  }

  void read_namespace(FieldReader& tool, const std::string& path) {
    Space space{.name = read_name(tool),
                .description = tool.text("description", SIZE_MAX).value_or("")};
    tool.require("tools");
    const json::Value* tools = tool.array("tools", max_tools());
    if (tools != nullptr && !problem_) read_list(*tools, path + ".tools", std::move(space));
  }

  void add(json::Value tool, const std::string& path, Space& space) {
    if (problem_) return;
    ToolKind kind{
        .is_custom = is_custom_tool(tool), .name = offered_name(tool), .name_space = space.name};
    const std::string shown = shown_name(space.name, kind.name);
    set_offered_name(tool, shown);
    describe(tool, std::exchange(space.description, {}));
    const bool is_plain = !kind.is_custom && kind.name_space.empty();
    const bool is_taken = !shown_.insert(shown).second;
    // Two functions of one name are the client's affair; of two kinds nobody could tell which one was called.
    if (is_taken && (!is_plain || read_.kinds.contains(shown))) {
      return problem_.set(invalid_parameter(
          path, path + " is " + json::shown_text(shown) + " to the model, as another tool is"));
    }
    const bool is_function = !kind.is_custom;
    if (!is_plain) read_.kinds.emplace(shown, std::move(kind));
    if (is_function) tool = {{"type", "function"}, {"function", std::move(tool)}};
    read_.tools.push_back(std::move(tool));
  }

  // The templates have no place for namespaces.
  static void describe(json::Value& tool, const std::string& of_namespace) {
    if (of_namespace.empty()) return;
    json::Value& inner = is_custom_tool(tool) ? tool["custom"] : tool;
    const std::string own = inner.value("description", "");
    inner["description"] = of_namespace + (own.empty() ? "" : "\n\n" + own);
  }

  const ServedModel& model_;
  FieldProblem& problem_;
  FieldReader& body_;
  FlatTools read_;
  std::set<std::string, std::less<>> shown_;  // names, as the model sees them
};

bool is_left_out(const FlatTools& tools, const std::string& type) {
  return tools.left_out.contains(type);
}

std::string read_chosen_name(FieldReader& reader) {
  reader.require("name");
  return shown_name(reader.text("namespace", kMaxNameBytes).value_or(""),
                    reader.text("name", kMaxNameBytes).value_or(""));
}

void fail_for_left_out(FieldReader& choice, const std::string& type) {
  choice.fail_with("type", choice.path_of("type") + " is " + json::shown_text(type) +
                               ", but the model cannot be offered such a tool: this server runs "
                               "no tools of its own");
}

// Tools that are left out anyway may be among them.
void read_allowed_names(FieldReader& choice, int max_tools, const FlatTools& offered,
                        ToolChoice& read) {
  const std::optional<std::string> mode = choice.text("mode", kMaxToolTypeBytes);
  choice.require("mode");
  if (mode && mode != "auto" && mode != "required") choice.fail("mode", "auto or required");
  if (mode == "required") read.mode = ToolMode::kRequired;
  const json::Value* tools = choice.array("tools", static_cast<size_t>(max_tools));
  std::string skipped;
  for (size_t i = 0; tools != nullptr && i < tools->size() && !choice.problem(); ++i) {
    const std::string path = element_path(choice.path_of("tools"), i);
    if (!(*tools)[i].is_object()) {
      return choice.problem().set(broken_rule(path, (*tools)[i], "an object"));
    }
    FieldReader tool((*tools)[i], path, choice.problem());
    const std::string type = tool.text("type", kMaxToolTypeBytes).value_or("function");
    if (names_one_tool(type)) {
      read.names.push_back(read_chosen_name(tool));
    } else if (is_left_out(offered, type)) {
      skipped = type;
    } else {
      tool.fail("type", "function, custom or the type of a tool");
    }
  }
  if (!read.names.empty() || choice.problem()) return;
  if (!skipped.empty()) return fail_for_left_out(choice, skipped);
  choice.fail_with("tools", choice.path_of("tools") + " must name at least one of the tools");
}

}  // namespace

FlatTools read_flat_tools(FieldReader& reader, const ServedModel& model) {
  return ResponseToolReader(reader, model).read();
}

ToolChoice read_flat_choice(FieldReader& reader, const ServedModel& model, const FlatTools& tools) {
  static constexpr const char* kForms =
      "auto, none, required or an object of the type function, custom or allowed_tools";
  ToolChoice read;
  read.parallel = reader.boolean("parallel_tool_calls");
  const json::Value* value = reader.find("tool_choice");
  if (value == nullptr || json::is_text(*value, "auto")) return read;
  if (json::is_text(*value, "none") || json::is_text(*value, "required")) {
    read.mode = json::is_text(*value, "none") ? ToolMode::kNone : ToolMode::kRequired;
    return read;
  }
  if (!value->is_object()) {
    reader.fail("tool_choice", kForms);
    return read;
  }
  FieldReader choice(*value, "tool_choice", reader.problem());
  const std::string type = choice.text("type", kMaxToolTypeBytes).value_or("");
  if (is_left_out(tools, type)) {
    fail_for_left_out(choice, type);
    return read;
  }
  const bool is_allowed = type == "allowed_tools";
  check_names(*value, "tool_choice", is_allowed ? flat_allowed_fields() : flat_choice_fields(),
              reader.problem());
  choice.require("type");
  read.is_some = true;
  if (is_allowed) {
    read_allowed_names(choice, model.limits.max_tools, tools, read);
  } else if (names_one_tool(type)) {
    read.mode = ToolMode::kNamed;
    read.names = {read_chosen_name(choice)};
  } else if (choice.find("type") != nullptr) {
    choice.fail("type", "function, custom or allowed_tools");
  }
  return read;
}

}  // namespace fathom::api
