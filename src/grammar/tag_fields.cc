#include "grammar/tag_fields.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace fathom::grammar {
namespace {

constexpr int64_t kMaxTagCount = 100'000;

}  // namespace

TagFields::TagFields(const json::Value& value, std::string path, std::string& problem)
    : value_(value), path_(std::move(path)), problem_(problem) {
  if (!value_.is_object()) fail("must be an object");
}

void TagFields::fail(const std::string& what) const {
  if (problem_.empty()) problem_ = "structural_tag at " + path_ + ": " + what;
}

void TagFields::allow(std::initializer_list<std::string_view> names) const {
  if (!value_.is_object()) return;
  for (const auto& [name, unused] : value_.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail("unknown field " + json::shown_text(name));
  }
}

void TagFields::refuse(std::string_view name, std::string_view why) const {
  const json::Value* value = find(name);
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return;
  if ((value->is_array() || value->is_object()) && value->empty()) return;
  fail(json::shown_text(name) + " is not supported: " + std::string(why));
}

const json::Value* TagFields::find(std::string_view name) const {
  if (!value_.is_object()) return nullptr;
  const auto found = value_.find(name);
  return found == value_.end() || found->is_null() ? nullptr : &*found;
}

const json::Value* TagFields::needed(std::string_view name) const {
  const json::Value* value = find(name);
  if (value == nullptr) fail(json::shown_text(name) + " is missing");
  return value;
}

std::string TagFields::text(std::string_view name) const {
  const json::Value* value = needed(name);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  fail(json::shown_text(name) + " must be a string");
  return "";
}

bool TagFields::flag(std::string_view name, bool otherwise) const {
  const json::Value* value = find(name);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  fail(json::shown_text(name) + " must be true or false");
  return otherwise;
}

int TagFields::count(std::string_view name) const {
  const json::Value* value = needed(name);
  if (value == nullptr) return 0;
  if (value->is_number_integer() && *value >= -1 && *value <= kMaxTagCount)
    return value->get<int>();
  fail(json::shown_text(name) + " must be an integer from -1 to " + std::to_string(kMaxTagCount));
  return 0;
}

const json::Value* TagFields::list(std::string_view name) const {
  const json::Value* value = needed(name);
  if (value == nullptr) return nullptr;
  if (value->is_array() && !value->empty()) return value;
  fail(json::shown_text(name) + " must be a list that is not empty");
  return nullptr;
}

std::vector<std::string> TagFields::texts(std::string_view name) const {
  std::vector<std::string> texts;
  const json::Value* value = find(name);
  if (value == nullptr) return texts;
  const auto is_text = [](const json::Value& item) {
    return item.is_string() && !item.get_ref<const std::string&>().empty();
  };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_text)) {
    fail(json::shown_text(name) + " must be a list of strings that are not empty");
    return texts;
  }
  for (const json::Value& item : *value) texts.push_back(item.get<std::string>());
  return texts;
}

}  // namespace fathom::grammar
