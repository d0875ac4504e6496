#include "api/responses/response_items.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "api/custom_tools.h"
#include "api/kept_reasoning.h"
#include "api/parts/text_parts.h"
#include "api/parts/unread_parts.h"
#include "api/request_fields.h"
#include "api/responses/foreign_items.h"
#include "api/tables/field_check.h"
#include "api/tables/response_item_fields.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxItemTypeBytes = 64;
constexpr size_t kMaxItemNameBytes = 256;

bool is_type(const json::Value& part, std::string_view type) {
  const auto found = part.find("type");
  return found != part.end() && json::is_text(*found, type);
}

constexpr std::string_view kTextTypes[] = {"input_text", "output_text", "text"};

// Of a part whose type says that it is no text.
bool is_unread(const json::Value& part) {
  const auto type = part.find("type");
  return type != part.end() && type->is_string() && !is_type(part, "refusal") &&
         std::ranges::none_of(kTextTypes, [&](auto text) { return json::is_text(*type, text); });
}

std::string read_text_part(const json::Value& part, const std::string& path,
                           FieldProblem& problem) {
  const bool is_refusal = is_type(part, "refusal");
  const char* const other = is_refusal ? "text" : "refusal";
  if (part.contains(other)) {
    problem.set(invalid_parameter(path + "." + other,
                                  path + "." + other + " belongs to another type of parts"));
  }
  if (!is_refusal) return read_typed_part(part, path, kTextTypes, item_part_fields(), problem);
  FieldReader refusal(part, path, item_part_fields(), problem);
  refusal.require("refusal");
  return refusal.text("refusal", SIZE_MAX).value_or("");
}

// A string, or parts of text, which are joined. Without either it is a problem. is_question: what is no text is one
// too.
std::string read_part_texts(FieldReader& item, std::string_view key, bool is_question) {
  item.require(key);
  return read_text_parts(item, key, "parts",
                         [&](const json::Value& part, const std::string& path, JoinedText& joined) {
                           if (!is_unread(part))
                             return joined.add(read_text_part(part, path, item.problem()));
                           FieldReader unread(part, path, item.problem());
                           if (is_question) return refuse_unread(unread);
                           joined.add_block(bracketed(part["type"].get_ref<const std::string&>()));
                         });
}

// The text of a reasoning item's content.
std::string reasoning_of_content(FieldReader& item) {
  const json::Value* const content = item.find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    item.fail("content", "a string or an array of texts");
    return "";
  }
  std::string text;
  for (const json::Value& part : *content) {
    const auto words = part.is_object() ? part.find("text") : part.end();
    if (words != part.end() && words->is_string()) text += words->get_ref<const std::string&>();
  }
  return text;
}

// Without a content, what the client kept.
std::string reasoning_of(FieldReader& item) {
  std::string text = reasoning_of_content(item);
  const std::optional<std::string> kept = item.text("encrypted_content", SIZE_MAX);
  return text.empty() && kept ? kept_reasoning(*kept) : text;
}

class ItemReader {
 public:
  ItemReader(const ItemSources& sources, const json::Value& input, FieldProblem& problem,
             PlacedMessages& read)
      : sources_(sources), problem_(problem), read_(read), result_ids_(ids_of_results(input)) {
    for (const text::Message& message : read.messages) {
      for (const text::ToolCall& call : message.tool_calls) call_ids_.insert(call.id);
    }
  }

  void read(const json::Value& value, const std::string& path, bool is_question) {
    if (!value.is_object()) return problem_.set(broken_rule(path, value, "an item, an object"));
    FieldReader item(value, path, problem_);
    const std::string type = item.text("type", kMaxItemTypeBytes).value_or("message");
    if (problem_) return;
    if (type == "message") {
      read_message(item, value, path, is_question);
    } else if (type == "function_call") {
      read_call(item, value, path);
    } else if (type == "custom_tool_call") {
      read_custom_call(item, value, path);
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      read_result(item, value, path);
    } else if (type == "reasoning") {
      check_names(value, path, reasoning_item_fields(), problem_);
      thoughts_ += reasoning_of(item);
    } else if (type == "item_reference") {
      read_reference(item, value, path);
    } else {
      read_foreign(value, path);
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
    take_thoughts();
  }

  // Reasoning is of the answer or the calls that follow it; of none if somebody else speaks.
  void take_thoughts() {
    text::Message& message = read_.messages.back();
    if (message.role == "assistant") message.reasoning += thoughts_;
    thoughts_.clear();
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
      return take_thoughts();
    }
    add({.role = role, .content = std::move(content)}, path);
  }

  // As the model knows the tool.
  static std::string called_name(FieldReader& item) {
    return shown_name(item.text("namespace", kMaxItemNameBytes).value_or(""),
                      item.text("name", kMaxItemNameBytes).value_or(""));
  }

  void read_call(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, call_item_fields(), problem_);
    for (const char* key : {"call_id", "name", "arguments"}) item.require(key);
    text::ToolCall call{.id = item.text("call_id", kMaxItemNameBytes).value_or(""),
                        .name = called_name(item),
                        .arguments = item.text("arguments", SIZE_MAX).value_or("")};
    if (call.arguments.empty()) call.arguments = "{}";
    if (!problem_) add_call(std::move(call), path);
  }

  void read_custom_call(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, custom_call_item_fields(), problem_);
    for (const char* key : {"call_id", "name", "input"}) item.require(key);
    text::ToolCall call{.id = item.text("call_id", kMaxItemNameBytes).value_or(""),
                        .name = called_name(item),
                        .arguments = arguments_of_input(item.text("input", SIZE_MAX).value_or(""))};
    if (!problem_) add_call(std::move(call), path);
  }

  void add_call(text::ToolCall call, const std::string& path) {
    const bool joins = !read_.messages.empty() && read_.messages.back().role == "assistant";
    if (!joins) add({.role = "assistant", .content = std::nullopt}, path);
    text::Message& message = read_.messages.back();
    const int max_calls = sources_.model.limits.max_tools;
    if (message.tool_calls.size() == static_cast<size_t>(max_calls)) {
      return problem_.set(invalid_parameter(
          path, path + " is one call too many, a turn may have " + std::to_string(max_calls)));
    }
    call_ids_.insert(call.id);
    message.tool_calls.push_back(std::move(call));
    take_thoughts();
  }

  void read_result(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, result_item_fields(), problem_);
    item.require("call_id");
    text::Message result{.role = "tool",
                         .content = read_part_texts(item, "output", /*is_question=*/false)};
    result.tool_call_id = item.text("call_id", kMaxItemNameBytes).value_or("");
    if (!problem_) add(std::move(result), path);
  }

  void read_reference(FieldReader& item, const json::Value& value, const std::string& path) {
    check_names(value, path, item_reference_fields(), problem_);
    item.require("id");
    const std::string id = item.text("id", kMaxItemNameBytes).value_or("");
    if (problem_) return;
    const std::optional<std::string> stored =
        sources_.find_item ? sources_.find_item(id) : std::nullopt;
    if (!stored) return problem_.set(item_not_found(path + ".id", id));
    read(json::parse(*stored).value(), path, /*is_question=*/false);
  }

  void read_foreign(const json::Value& value, const std::string& path) {
    std::optional<text::ToolCall> call = foreign_call(value);
    if (call && result_ids_.contains(call->id)) return add_call(std::move(*call), path);
    std::optional<text::Message> result = foreign_result(value);
    if (result && call_ids_.contains(result->tool_call_id)) return add(std::move(*result), path);
    problem_.skip_unknown("input[] of the type " + value["type"].get<std::string>());
  }

  const ItemSources& sources_;
  FieldProblem& problem_;
  PlacedMessages& read_;
  const std::set<std::string> result_ids_;  // of the whole input
  std::set<std::string> call_ids_;          // so far
  std::string thoughts_;                    // of what comes next
};

// Of an item that may be anything: what is no message is the model's or a tool's.
Speaker speaker_of_item(const json::Value& item) {
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

}  // namespace

void read_items(FieldReader& reader, const ItemSources& sources, PlacedMessages& read) {
  reader.require("input");
  const json::Value* input = reader.find("input");
  if (input == nullptr) return;
  if (input->is_string()) {
    read.messages.push_back({.role = "user", .content = input->get<std::string>()});
    read.places.emplace_back("input");
    return;
  }
  const auto max_items = static_cast<size_t>(sources.model.limits.max_messages);
  if (!input->is_array() || input->size() > max_items) {
    return reader.fail("input",
                       "a string or an array of at most " + std::to_string(max_items) + " items");
  }
  ItemReader items(sources, *input, reader.problem(), read);
  const size_t question =
      newest_question(input->size(), [&](size_t i) { return speaker_of_item((*input)[i]); });
  for (size_t i = 0; i < input->size() && !reader.problem(); ++i) {
    items.read((*input)[i], element_path("input", i), i == question);
  }
}

}  // namespace fathom::api
