#include "api/parts/block_text.h"

#include <algorithm>
#include <string_view>

#include "api/parts/text_parts.h"
#include "api/parts/unread_parts.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr int kMaxDepth = 4;  // of contents in contents

const json::Value* object_at(const json::Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

// Of an earlier answer, and not what it said.
bool is_left_out(std::string_view type) {
  static constexpr std::string_view kTypes[] = {"thinking", "redacted_thinking", "fallback",
                                                "mcp_tool_listing"};
  return std::ranges::find(kTypes, type) != std::ranges::end(kTypes);
}

// tool_addition and tool_removal name a tool within.
std::string_view name_of(const json::Value& block) {
  const json::Value* const tool = object_at(block, "tool");
  for (const char* key : {"tool_name", "name", "title"}) {
    const std::string_view name = json::text_at(tool != nullptr ? *tool : block, key);
    if (!name.empty()) return name;
  }
  return {};
}

BlockText text_of(const json::Value& block, int depth);

// Returns whether there was any text.
bool add_content(const json::Value& content, int depth, JoinedText& joined) {
  if (content.is_string()) {
    joined.add(content.get_ref<const std::string&>());
    return !content.get_ref<const std::string&>().empty();
  }
  if (content.is_object()) {
    const BlockText inner = text_of(content, depth + 1);
    if (json::text_at(content, "type") == "text") {
      joined.add(inner.text);
    } else {
      joined.add_block(inner.text);
    }
    return !inner.is_unread && !inner.text.empty();
  }
  bool has_text = false;
  // A number is a list of itself to whoever walks it.
  if (!content.is_array()) return has_text;
  for (const json::Value& element : content) {
    if (!element.is_array()) has_text = add_content(element, depth, joined) || has_text;
  }
  return has_text;
}

bool add_body(const json::Value& block, int depth, JoinedText& joined) {
  bool has_text = false;
  for (const char* key : {"text", "stdout", "stderr"}) {
    joined.add(json::text_at(block, key));
    has_text = has_text || !json::text_at(block, key).empty();
  }
  if (const json::Value* source = object_at(block, "source")) {
    // Other data is in base64.
    if (json::text_at(*source, "media_type") == "text/plain") {
      joined.add(json::text_at(*source, "data"));
      has_text = has_text || !json::text_at(*source, "data").empty();
    }
    if (const auto inner = source->find("content"); inner != source->end()) {
      has_text = add_content(*inner, depth, joined) || has_text;
    }
  }
  if (const auto inner = block.find("content"); inner != block.end()) {
    has_text = add_content(*inner, depth, joined) || has_text;
  }
  return has_text;
}

BlockText text_of(const json::Value& block, int depth) {
  const std::string_view type = json::text_at(block, "type");
  if (is_left_out(type)) return {};
  const std::string in_brackets = bracketed(type, name_of(block));
  if (type == "tool_reference") return {.text = in_brackets};
  JoinedText body;
  if (depth > kMaxDepth || !add_body(block, depth, body)) {
    return {.text = in_brackets, .is_unread = true};
  }
  if (type != "document" && type != "search_result") return {.text = body.take()};
  JoinedText whole;
  for (const char* key : {"title", "source", "context"}) whole.add_block(json::text_at(block, key));
  whole.add_block(body.take());
  return {.text = whole.take()};
}

}  // namespace

BlockText text_of_block(const json::Value& block) { return text_of(block, 0); }

}  // namespace fathom::api
