#include "api/legacy_functions.h"

#include <utility>

#include "api/conversation_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "text/tool_schema.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxFunctionNameBytes = 256;
constexpr std::string_view kTools = "tools";

// "tools[0].name: ..." is about functions[0].name.
ApiError problem_of(const Error& error) {
  std::string message = error.message;
  if (message.starts_with(kTools)) message.replace(0, kTools.size(), "functions");
  const size_t colon = message.find(": ");
  std::string place = colon == std::string::npos ? "functions" : message.substr(0, colon);
  return invalid_parameter(std::move(place), std::move(message));
}

}  // namespace

bool has_functions(FieldReader& reader) {
  const json::Value* functions = reader.find("functions");
  const json::Value* call = reader.find("function_call");
  return (functions != nullptr && (!functions->is_array() || !functions->empty())) ||
         (call != nullptr && !json::is_text(*call, "none"));
}

json::Value read_functions(FieldReader& reader, const ServedModel& model) {
  json::Value tools = json::Value::array();
  for (const char* key : {"tools", "tool_choice"}) {
    if (reader.find(key) == nullptr) continue;
    reader.fail_with("functions", "functions and " + std::string(key) +
                                      " are both set, must be one of them: functions and "
                                      "function_call, or tools and tool_choice");
    return tools;
  }
  const json::Value* functions =
      reader.array("functions", static_cast<size_t>(model.limits.max_tools));
  if (functions == nullptr || functions->empty()) {
    reader.fail_with("function_call", "function_call is set, but there are no functions");
    return tools;
  }
  if (const Status status = text::validate_tools(*functions); !status) {
    reader.problem().set(problem_of(status.error()));
    return tools;
  }
  for (size_t i = 0; i < functions->size() && !reader.problem(); ++i) {
    const json::Value& function = (*functions)[i];
    FieldReader inner(function, element_path(reader.path_of("functions"), i), function_fields(),
                      reader.problem());
    inner.boolean("strict");
    tools.push_back({{"type", "function"}, {"function", function}});
  }
  return tools;
}

ToolChoice read_function_call(FieldReader& reader) {
  ToolChoice choice;
  choice.parallel = false;
  choice.field = "function_call";
  const json::Value* value = reader.find("function_call");
  if (value == nullptr || json::is_text(*value, "auto")) return choice;
  if (json::is_text(*value, "none")) {
    choice.mode = ToolMode::kNone;
  } else if (value->is_object()) {
    FieldReader inner(*value, reader.path_of("function_call"), chosen_function_fields(),
                      reader.problem());
    inner.require("name");
    choice.mode = ToolMode::kNamed;
    choice.is_some = true;
    choice.names = {inner.text("name", kMaxFunctionNameBytes).value_or("")};
  } else {
    reader.fail("function_call", "auto, none or an object with the name of a function");
  }
  return choice;
}

void LegacyCalls::take(FieldReader& message, text::Message& result) {
  if (const json::Value* call = message.object("function_call")) {
    if (result.role != "assistant" || !result.tool_calls.empty()) {
      return message.fail_with("function_call", message.path_of("function_call") +
                                                    " is set, must be an assistant's, without "
                                                    "tool_calls");
    }
    FieldReader function(*call, message.path_of("function_call"), called_function_fields(),
                         message.problem());
    function.require("name");
    open_id_ = "function-call-" + std::to_string(num_calls_++);
    open_name_ = function.text("name", kMaxFunctionNameBytes).value_or("");
    result.tool_calls.push_back(
        {.id = open_id_, .name = open_name_, .arguments = read_arguments(function)});
  }
  if (result.role != "function") return;
  const std::string name = message.text("name", kMaxFunctionNameBytes).value_or("");
  if (open_id_.empty() || name != open_name_) {
    return message.fail_with("name",
                             message.path_of("name") + " is " + shown(json::Value(name)) +
                                 ", must be the function that the assistant called before: " +
                                 (open_id_.empty() ? "none" : shown(json::Value(open_name_))));
  }
  result.role = "tool";
  result.tool_call_id = std::exchange(open_id_, {});
}

}  // namespace fathom::api
