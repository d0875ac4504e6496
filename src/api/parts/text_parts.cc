#include "api/parts/text_parts.h"

#include <algorithm>
#include <cstdint>

#include "api/tables/field_check.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxPartTypeBytes = 64;

std::string one_of(std::span<const std::string_view> types) {
  std::string text;
  for (const std::string_view type : types) {
    text += (text.empty() ? "" : " or ") + std::string(type);
  }
  return text;
}

}  // namespace

void JoinedText::add(std::string_view text) {
  if (text.empty()) return;
  if (std::exchange(ends_block_, false) && text.front() != '\n') text_ += '\n';
  text_ += text;
}

void JoinedText::add_block(std::string_view text) {
  if (text.empty()) return;
  if (!text_.empty() && text_.back() != '\n') text_ += '\n';
  text_ += text;
  ends_block_ = true;
}

std::string read_text_parts(FieldReader& reader, std::string_view key, std::string_view name,
                            const PartReader& read_part) {
  const json::Value* parts = reader.find(key);
  if (parts == nullptr) return "";
  if (parts->is_string()) return parts->get<std::string>();
  if (!parts->is_array() || parts->size() > kMaxTextParts) {
    reader.fail(key, "a string or an array of at most " + std::to_string(kMaxTextParts) + " " +
                         std::string(name));
    return "";
  }
  JoinedText joined;
  for (size_t i = 0; i < parts->size() && !reader.problem(); ++i) {
    const json::Value& part = (*parts)[i];
    const std::string path = element_path(reader.path_of(key), i);
    if (part.is_object()) {
      read_part(part, path, joined);
    } else {
      reader.problem().set(broken_rule(path, part, "an object with type and text"));
    }
  }
  return joined.take();
}

std::string read_typed_part(const json::Value& part, const std::string& path,
                            std::span<const std::string_view> types, const FieldTable& fields,
                            FieldProblem& problem) {
  FieldReader reader(part, path, problem);
  reader.require("type");
  const std::string type = reader.text("type", kMaxPartTypeBytes).value_or("");
  if (problem) return "";
  if (std::ranges::find(types, type) == types.end()) {
    reader.fail("type", one_of(types) + ": this model reads nothing else here");
    return "";
  }
  return read_part_text(reader, part, path, fields);
}

std::string read_part_text(FieldReader& part, const json::Value& value, const std::string& path,
                           const FieldTable& fields) {
  check_names(value, path, fields, part.problem());
  part.require("text");
  return part.text("text", SIZE_MAX).value_or("");
}

}  // namespace fathom::api
