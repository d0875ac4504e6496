#include "api/response_items.h"

#include <string_view>
#include <utility>

#include "api/request_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/responses_fields.h"
#include "api/text_parts.h"
#include "api/unread_parts.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxItemTypeBytes = 64;
constexpr size_t kMaxItemNameBytes = 256;

// Of a part whose type says that it is no text.
bool is_unread(const json::Value& part) {
  const auto type = part.find("type");
  return type != part.end() && type->is_string() && !json::is_text(*type, "input_text") &&
         !json::is_text(*type, "output_text");
}

// A string, or parts of text, which are joined. Without either it is a problem. is_question: what is no text is one
// too.
std::string read_part_texts(FieldReader& item, std::string_view key, bool is_question) {
  static constexpr std::string_view kTypes[] = {"input_text", "output_text"};
  item.require(key);
  return read_text_parts(
      item, key, "parts",
      [&](const json::Value& part, const std::string& path, JoinedText& joined) {
        if (!is_unread(part)) {
          return joined.add(
              read_typed_part(part, path, kTypes, item_part_fields(), item.problem()));
        }
        FieldReader unread(part, path, item.problem());
        if (is_question) return refuse_unread(unread);
        joined.add_block(placeholder_of(part["type"].get_ref<const std::string&>()));
      });
}

class ItemReader {
 public:
  ItemReader(const ServedModel& model, FieldProblem& problem, PlacedMessages& read)
      : model_(model), problem_(problem), read_(read) {}

  void read(const json::Value& value, const std::string& path, bool is_question) {
    if (!value.is_object()) return problem_.set(broken_rule(path, value, "an item, an object"));
    FieldReader item(value, path, problem_);
    const std::string type = item.text("type", kMaxItemTypeBytes).value_or("message");
    if (problem_) return;
    if (type == "message") {
      read_message(item, value, path, is_question);
    } else if (type == "function_call") {
      read_call(item, value, path);
    } else if (type == "function_call_output") {
      read_result(item, value, path);
    } else if (type == "reasoning") {
      check_names(value, path, reasoning_item_fields(), problem_);
    } else {
      item.fail("type", "message, function_call, function_call_output or reasoning");
    }
  }

 private:
  // The message that an item of the assistant's turn goes on with: behind calls, and before their results.
  text::Message* open_calls() {
    if (read_.messages.empty() || read_.messages.back().tool_calls.empty()) return nullptr;
    return &read_.messages.back();
  }

  void add(text::Message message, const std::string& place) {
    read_.messages.push_back(std::move(message));
    read_.places.push_back(place);
  }

  void read_message(FieldReader& item, const json::Value& value, const std::string& path,
                    bool is_question) {
    check_names(value, path, message_item_fields(), problem_);
    item.require("role");
    const std::string role = item.text("role", kMaxItemTypeBytes).value_or("");
    if (problem_) return;
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return item.fail("role", "user, assistant, system or developer");
    }
    std::string content = read_part_texts(item, "content", is_question);
    if (problem_) return;
    if (text::Message* open = role == "assistant" ? open_calls() : nullptr) {
      if (!open->content) open->content.emplace();
      *open->content += content;
      return;
    }
    add({.role = role, .content = std::move(content)}, path);
  }

  void read_call(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, call_item_fields(), problem_);
    for (const char* key : {"call_id", "name", "arguments"}) item.require(key);
    text::ToolCall call{.id = item.text("call_id", kMaxItemNameBytes).value_or(""),
                        .name = item.text("name", kMaxItemNameBytes).value_or(""),
                        .arguments = item.text("arguments", SIZE_MAX).value_or("")};
    if (call.arguments.empty()) call.arguments = "{}";
    if (problem_) return;
    const bool joins = !read_.messages.empty() && read_.messages.back().role == "assistant";
    if (!joins) add({.role = "assistant", .content = std::nullopt}, path);
    text::Message& message = read_.messages.back();
    if (message.tool_calls.size() == static_cast<size_t>(model_.limits.max_tools)) {
      return item.fail_with("type", path + " is one function_call too many, a turn may have " +
                                        std::to_string(model_.limits.max_tools));
    }
    message.tool_calls.push_back(std::move(call));
  }

  void read_result(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, result_item_fields(), problem_);
    item.require("call_id");
    text::Message result{.role = "tool",
                         .content = read_part_texts(item, "output", /*is_question=*/false)};
    result.tool_call_id = item.text("call_id", kMaxItemNameBytes).value_or("");
    if (!problem_) add(std::move(result), path);
  }

  const ServedModel& model_;
  FieldProblem& problem_;
  PlacedMessages& read_;
};

// Of an item that may be anything: what is no message is the model's or a tool's.
Speaker speaker_of(const json::Value& item) {
  if (!item.is_object()) return Speaker::kOther;
  const auto type = item.find("type"), role = item.find("role");
  if (type != item.end() && type->is_string() && !json::is_text(*type, "message")) {
    const bool is_result = type->get_ref<const std::string&>().ends_with("_output");
    return is_result ? Speaker::kTool : Speaker::kModel;
  }
  if (role == item.end()) return Speaker::kOther;
  if (json::is_text(*role, "user")) return Speaker::kPerson;
  return json::is_text(*role, "assistant") ? Speaker::kModel : Speaker::kOther;
}

json::Value read_flat_tool(const json::Value& value, const std::string& path,
                           FieldProblem& problem) {
  if (!value.is_object()) {
    problem.set(broken_rule(path, value, "an object of the type function"));
    return {};
  }
  FieldReader tool(value, path, problem);
  tool.require("type");
  const std::optional<std::string> type = tool.text("type", kMaxItemTypeBytes);
  if (type && type != "function") {
    tool.fail("type", "function: this server runs no tools of its own");
  }
  check_names(value, path, flat_tool_fields(), problem);
  tool.require("name");
  const std::optional<std::string> name = tool.text("name", kMaxItemNameBytes);
  if (name && name->empty()) tool.fail("name", "a string that is not empty");
  const std::optional<std::string> description = tool.text("description", SIZE_MAX);
  const json::Value* parameters = tool.object("parameters");
  const std::optional<bool> is_strict = tool.boolean("strict");
  if (problem) return {};
  json::Value function = {{"name", *name}};
  if (description) function["description"] = *description;
  if (parameters != nullptr) function["parameters"] = *parameters;
  if (is_strict) function["strict"] = *is_strict;
  return function;
}

std::string read_chosen_name(FieldReader& reader) {
  reader.require("name");
  return reader.text("name", kMaxItemNameBytes).value_or("");
}

void read_allowed_names(FieldReader& choice, int max_tools, ToolChoice& read) {
  const std::optional<std::string> mode = choice.text("mode", kMaxItemTypeBytes);
  choice.require("mode");
  if (mode && mode != "auto" && mode != "required") choice.fail("mode", "auto or required");
  if (mode == "required") read.mode = ToolMode::kRequired;
  const json::Value* tools = choice.array("tools", static_cast<size_t>(max_tools));
  if (tools == nullptr || tools->empty()) {
    return choice.fail_with("tools",
                            choice.path_of("tools") + " must name at least one of the tools");
  }
  for (size_t i = 0; i < tools->size() && !choice.problem(); ++i) {
    const std::string path = element_path(choice.path_of("tools"), i);
    if (!(*tools)[i].is_object()) {
      return choice.problem().set(broken_rule(path, (*tools)[i], "an object"));
    }
    FieldReader tool((*tools)[i], path, choice.problem());
    const std::optional<std::string> type = tool.text("type", kMaxItemTypeBytes);
    if (type && type != "function") tool.fail("type", "function");
    read.names.push_back(read_chosen_name(tool));
  }
}

}  // namespace

void read_items(FieldReader& reader, const ServedModel& model, PlacedMessages& read) {
  reader.require("input");
  const json::Value* input = reader.find("input");
  if (input == nullptr) return;
  if (input->is_string()) {
    read.messages.push_back({.role = "user", .content = input->get<std::string>()});
    read.places.emplace_back("input");
    return;
  }
  const auto max_items = static_cast<size_t>(model.limits.max_messages);
  if (!input->is_array() || input->size() > max_items) {
    return reader.fail("input",
                       "a string or an array of at most " + std::to_string(max_items) + " items");
  }
  ItemReader items(model, reader.problem(), read);
  const size_t question =
      newest_question(input->size(), [&](size_t i) { return speaker_of((*input)[i]); });
  for (size_t i = 0; i < input->size() && !reader.problem(); ++i) {
    items.read((*input)[i], element_path("input", i), i == question);
  }
}

json::Value read_flat_tools(FieldReader& reader, const ServedModel& model) {
  json::Value functions = json::Value::array();
  const json::Value* tools = reader.array("tools", static_cast<size_t>(model.limits.max_tools));
  for (size_t i = 0; tools != nullptr && i < tools->size() && !reader.problem(); ++i) {
    functions.push_back(read_flat_tool((*tools)[i], element_path("tools", i), reader.problem()));
  }
  return functions;
}

ToolChoice read_flat_choice(FieldReader& reader, const ServedModel& model) {
  ToolChoice read;
  read.parallel = reader.boolean("parallel_tool_calls");
  const json::Value* value = reader.find("tool_choice");
  if (value == nullptr || json::is_text(*value, "auto")) return read;
  if (json::is_text(*value, "none") || json::is_text(*value, "required")) {
    read.mode = json::is_text(*value, "none") ? ToolMode::kNone : ToolMode::kRequired;
    return read;
  }
  if (!value->is_object()) {
    reader.fail("tool_choice",
                "auto, none, required or an object of the type function or allowed_tools");
    return read;
  }
  FieldReader choice(*value, "tool_choice", reader.problem());
  const std::optional<std::string> type = choice.text("type", kMaxItemTypeBytes);
  check_names(*value, "tool_choice",
              type == "allowed_tools" ? flat_allowed_fields() : flat_choice_fields(),
              reader.problem());
  choice.require("type");
  read.is_some = true;
  if (type == "function") {
    read.mode = ToolMode::kNamed;
    read.names = {read_chosen_name(choice)};
  } else if (type == "allowed_tools") {
    read_allowed_names(choice, model.limits.max_tools, read);
  } else if (type) {
    choice.fail("type", "function or allowed_tools");
  }
  return read;
}

}  // namespace fathom::api
