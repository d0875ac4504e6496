#include "api/responses/foreign_items.h"

#include <algorithm>
#include <string_view>

#include "api/parts/unread_parts.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr std::string_view kCallEnd = "_call", kResultEnd = "_output";

// local_shell_call_output names its call in `id`.
std::string_view id_of_call(const json::Value& item) {
  const std::string_view id = json::text_at(item, "call_id");
  return id.empty() ? json::text_at(item, "id") : id;
}

json::Value without_bookkeeping(const json::Value& item) {
  json::Value rest = json::Value::object();
  for (const auto& [key, value] : item.get_ref<const json::Value::object_t&>()) {
    if (key != "type" && key != "id" && key != "call_id" && key != "status") rest[key] = value;
  }
  return rest;
}

std::string arguments_in(const json::Value& item) {
  for (const char* key : {"arguments", "action", "operation"}) {
    const auto found = item.find(key);
    if (found == item.end()) continue;
    if (found->is_object()) return json::dump(*found);
    if (found->is_string()) return found->get<std::string>();
  }
  return json::dump(without_bookkeeping(item));
}

std::string part_text(const json::Value& part) {
  if (!part.is_object()) return json::dump(part);
  if (part.contains("text") && part["text"].is_string()) return part["text"].get<std::string>();
  const std::string_view type = json::text_at(part, "type");
  if (type.find("image") == std::string_view::npos && type.find("file") == std::string_view::npos &&
      type.find("screenshot") == std::string_view::npos) {
    return json::dump(part);
  }
  return bracketed(type);
}

std::string result_text(const json::Value& item) {
  const auto output = item.find("output");
  if (output == item.end()) return json::dump(without_bookkeeping(item));
  if (output->is_string()) return output->get<std::string>();
  if (!output->is_array()) return part_text(*output);
  std::string text;
  for (const json::Value& part : *output) text += (text.empty() ? "" : "\n") + part_text(part);
  return text;
}

bool is_result(const json::Value& item) {
  return item.is_object() && json::text_at(item, "type").ends_with(kResultEnd);
}

}  // namespace

std::optional<text::ToolCall> foreign_call(const json::Value& item) {
  const std::string_view type = json::text_at(item, "type"), id = json::text_at(item, "call_id");
  if (!type.ends_with(kCallEnd) || type.size() == kCallEnd.size() || id.empty()) {
    return std::nullopt;
  }
  return text::ToolCall{.id = std::string(id),
                        .name = std::string(type.substr(0, type.size() - kCallEnd.size())),
                        .arguments = arguments_in(item)};
}

std::optional<text::Message> foreign_result(const json::Value& item) {
  if (!is_result(item)) return std::nullopt;
  text::Message result{.role = "tool", .content = result_text(item)};
  result.tool_call_id = std::string(id_of_call(item));
  return result;
}

std::set<std::string> ids_of_results(const json::Value& input) {
  std::set<std::string> ids;
  for (const json::Value& item : input) {
    if (is_result(item)) ids.emplace(id_of_call(item));
  }
  return ids;
}

}  // namespace fathom::api
