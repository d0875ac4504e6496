#include "api/message_blocks.h"

#include <string_view>
#include <utility>

#include "api/request_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/messages_fields.h"
#include "api/text_parts.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxWordBytes = 64;  // of roles and types
constexpr size_t kMaxCallNameBytes = 256;

// Tool calls of a server's own programs name who called; ours are the model's.
void check_direct(const json::Value* caller, FieldReader& block) {
  if (caller == nullptr) return;
  const bool is_direct =
      caller->is_object() && caller->contains("type") && json::is_text((*caller)["type"], "direct");
  if (!is_direct) block.fail("caller", "an object of the type direct");
}

// A block as its reader and type. An empty type: a problem.
std::string read_type(FieldReader& block) {
  block.require("type");
  return block.text("type", kMaxWordBytes).value_or("");
}

// An answer's arguments that were no JSON object came as text under a name of their own, and come back so.
std::string arguments_of(const json::Value& input) {
  if (input.size() == 1 && input.contains(kInvalidJsonKey) && input[kInvalidJsonKey].is_string()) {
    return input[kInvalidJsonKey].get<std::string>();
  }
  return json::dump(input);
}

// A string, or blocks of text, which are joined.
std::string read_texts(FieldReader& reader, std::string_view key) {
  static constexpr std::string_view kTypes[] = {"text"};
  return read_text_parts(
      reader, key, "blocks", [&](const json::Value& block, const std::string& path) {
        return read_typed_part(block, path, kTypes, text_block_fields(), reader.problem());
      });
}

class MessageReader {
 public:
  MessageReader(const ServedModel& model, FieldProblem& problem, PlacedMessages& read)
      : model_(model), problem_(problem), read_(read) {}

  void read(const json::Value& value, const std::string& path) {
    if (!value.is_object()) {
      return problem_.set(broken_rule(path, value, "an object with role and content"));
    }
    FieldReader message(value, path, turn_fields(), problem_);
    message.require("role");
    const std::string role = message.text("role", kMaxWordBytes).value_or("");
    if (problem_) return;
    if (role != "user" && role != "assistant" && role != "system") {
      return message.fail("role", "user, assistant or system");
    }
    message.require("content");
    const json::Value* content = message.find("content");
    if (problem_) return;
    if (content->is_string()) {
      return add({.role = role, .content = content->get<std::string>()}, path);
    }
    if (!content->is_array() || content->size() > kMaxTextParts) {
      return message.fail("content", "a string or an array of at most " +
                                         std::to_string(kMaxTextParts) + " blocks");
    }
    read_blocks(*content, role, path);
  }

 private:
  void add(text::Message message, std::string place) {
    read_.messages.push_back(std::move(message));
    read_.places.push_back(std::move(place));
  }

  void read_blocks(const json::Value& blocks, const std::string& role, const std::string& path) {
    text::Message message{.role = role, .content = std::nullopt};
    for (size_t i = 0; i < blocks.size() && !problem_; ++i) {
      read_block(blocks[i], element_path(path + ".content", i), message);
    }
    const bool is_results_alone = role == "user" && !message.content && !blocks.empty();
    if (problem_ || is_results_alone) return;
    if (!message.content && message.tool_calls.empty()) message.content = "";
    add(std::move(message), path);
  }

  void read_block(const json::Value& value, const std::string& path, text::Message& message) {
    if (!value.is_object()) return problem_.set(broken_rule(path, value, "an object with a type"));
    FieldReader block(value, path, problem_);
    const std::string type = read_type(block);
    if (problem_) return;
    if (type == "text") {
      if (!message.content) message.content.emplace();
      *message.content += read_part_text(block, value, path, text_block_fields());
    } else if (message.role == "assistant" && type == "tool_use") {
      read_tool_use(block, value, path, message);
    } else if (message.role == "assistant" && (type == "thinking" || type == "redacted_thinking")) {
      check_thinking(block, value, path, type == "thinking");
    } else if (message.role == "user" && type == "tool_result") {
      read_tool_result(block, value, path, message);
    } else {
      block.fail("type",
                 message.role == "assistant" ? "text, thinking, redacted_thinking or tool_use"
                 : message.role == "user"    ? "text or tool_result: this model reads nothing else"
                                             : "text");
    }
  }

  void check_thinking(FieldReader& block, const json::Value& value, const std::string& path,
                      bool is_plain) {
    check_names(value, path, is_plain ? thinking_block_fields() : redacted_block_fields(),
                problem_);
    for (const char* key : {"thinking", "signature", "data"}) {
      const json::Value* text = block.find(key);
      if (text != nullptr && !text->is_string()) block.fail(key, "a string");
    }
  }

  void read_tool_use(FieldReader& block, const json::Value& value, const std::string& path,
                     text::Message& message) {
    check_names(value, path, tool_use_block_fields(), problem_);
    check_direct(block.find("caller"), block);
    for (const char* key : {"id", "name", "input"}) block.require(key);
    const json::Value* input = block.object("input");
    const auto max_calls = static_cast<size_t>(model_.limits.max_tools);
    if (message.tool_calls.size() == max_calls) {
      block.fail_with("type", path + " is one tool_use too many, a message may have at most " +
                                  std::to_string(max_calls));
    }
    text::ToolCall call{.id = block.text("id", kMaxCallNameBytes).value_or(""),
                        .name = block.text("name", kMaxCallNameBytes).value_or(""),
                        .arguments = {}};
    if (problem_) return;
    call.arguments = arguments_of(*input);
    message.tool_calls.push_back(std::move(call));
  }

  void read_tool_result(FieldReader& block, const json::Value& value, const std::string& path,
                        const text::Message& message) {
    check_names(value, path, tool_result_block_fields(), problem_);
    block.require("tool_use_id");
    if (message.content) {
      block.fail_with("type", path + " is a tool_result after other content, must come before it");
    }
    text::Message result{.role = "tool", .content = read_texts(block, "content")};
    result.tool_call_id = block.text("tool_use_id", kMaxCallNameBytes).value_or("");
    // The templates have no mark for it: what went wrong is in the content, or this says that something did.
    const bool is_error = block.boolean("is_error").value_or(false);
    if (is_error && result.content->empty()) result.content = "error";
    if (!problem_) add(std::move(result), path);
  }

  const ServedModel& model_;
  FieldProblem& problem_;
  PlacedMessages& read_;
};

// {name, description, input_schema} as the function that it is elsewhere.
json::Value read_custom_tool(const json::Value& value, const std::string& path,
                             FieldProblem& problem) {
  if (!value.is_object()) {
    problem.set(broken_rule(path, value, "an object with name and input_schema"));
    return {};
  }
  FieldReader tool(value, path, problem);
  const std::optional<std::string> type = tool.text("type", kMaxWordBytes);
  if (type && type != "custom") tool.fail("type", "custom: this server runs no tools of its own");
  check_names(value, path, message_tool_fields(), problem);
  if (const json::Value* callers = tool.find("allowed_callers")) {
    if (*callers != json::Value::array({"direct"})) tool.fail("allowed_callers", R"(["direct"])");
  }
  tool.boolean("eager_input_streaming");  // arguments are always streamed as they are made
  const std::optional<bool> is_strict = tool.boolean("strict");
  const std::optional<std::string> name = tool.text("name", kMaxCallNameBytes);
  const std::optional<std::string> description = tool.text("description", SIZE_MAX);
  const json::Value* schema = tool.object("input_schema");
  tool.require("name");
  tool.require("input_schema");
  if (name && name->empty()) tool.fail("name", "a string that is not empty");
  if (problem) return {};
  json::Value function = {{"name", *name}};
  if (description) function["description"] = *description;
  function["parameters"] = *schema;
  if (is_strict) function["strict"] = *is_strict;
  return function;
}

}  // namespace

PlacedMessages read_block_messages(FieldReader& reader, const ServedModel& model) {
  PlacedMessages read;
  if (reader.find("system") != nullptr) {
    read.messages.push_back({.role = "system", .content = read_texts(reader, "system")});
    read.places.emplace_back("system");
  }
  const auto max_messages = static_cast<size_t>(model.limits.max_messages);
  const json::Value* list = reader.array("messages", max_messages);
  reader.require("messages");
  if (reader.problem()) return read;
  if (list->empty()) reader.fail("messages", "not empty");
  MessageReader messages(model, reader.problem(), read);
  for (size_t i = 0; i < list->size() && !reader.problem(); ++i) {
    messages.read((*list)[i], element_path("messages", i));
  }
  return read;
}

json::Value read_custom_tools(FieldReader& reader, const ServedModel& model) {
  json::Value functions = json::Value::array();
  const json::Value* tools = reader.array("tools", static_cast<size_t>(model.limits.max_tools));
  for (size_t i = 0; tools != nullptr && i < tools->size() && !reader.problem(); ++i) {
    functions.push_back(read_custom_tool((*tools)[i], element_path("tools", i), reader.problem()));
  }
  return functions;
}

}  // namespace fathom::api
