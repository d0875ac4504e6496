#include "config/json_reader.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "base/json.h"

namespace fathom::config {
namespace {

std::string range_text(double min, double max) {
  std::ostringstream text;
  text << "[" << min << ", " << max << "]";
  return text.str();
}

std::string range_text(int64_t min, int64_t max) {
  if (min == max) return std::to_string(min);
  return "an integer in [" + std::to_string(min) + ", " + std::to_string(max) + "]";
}

// Integers as JSON writes them; 7168.0 is a float and refused. Values past int64 saturate, which no
// range contains.
std::optional<int64_t> as_integer(const json::Value& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return INT64_MAX;
  return value.get<int64_t>();
}

}  // namespace

JsonReader::JsonReader(const json::Value& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {
  for (const auto& member : object.items()) members_.emplace(member.key(), &member.value());
}

const json::Value* JsonReader::find(std::string_view key) {
  known_.emplace(key);
  const auto it = members_.find(key);
  if (it == members_.end() || it->second->is_null()) return nullptr;
  return it->second;
}

int64_t JsonReader::integer64(std::string_view key, const IntRule& rule) {
  const json::Value* value = find(key);
  if (value == nullptr && rule.fallback) return *rule.fallback;
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : as_integer(*value);
  const bool valid = number && *number >= rule.min && *number <= rule.max;
  require(valid, key, range_text(rule.min, rule.max));
  return valid ? *number : rule.min;
}

int JsonReader::integer(std::string_view key, const IntRule& rule) {
  FATHOM_CHECK(rule.max <= INT32_MAX && rule.min >= INT32_MIN, "range of " << key);
  return static_cast<int>(integer64(key, rule));
}

std::optional<int> JsonReader::optional_integer(std::string_view key, const IntRule& rule) {
  if (find(key) == nullptr) return std::nullopt;
  return integer(key, rule);
}

double JsonReader::number(std::string_view key, const NumberRule& rule) {
  const json::Value* value = find(key);
  if (value == nullptr && rule.fallback) return *rule.fallback;
  const double parsed = value != nullptr && value->is_number() ? value->get<double>() : NAN;
  const bool valid = parsed >= rule.min && parsed <= rule.max;  // false for NaN
  require(valid, key, "a number in " + range_text(rule.min, rule.max));
  return valid ? parsed : rule.min;
}

bool JsonReader::boolean(std::string_view key, bool fallback) {
  const json::Value* value = find(key);
  if (value == nullptr) return fallback;
  require(value->is_boolean(), key, "true or false");
  return value->is_boolean() ? value->get<bool>() : fallback;
}

std::string JsonReader::text(std::string_view key, std::string_view fallback) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::string(fallback);
  require(value->is_string(), key, "a string");
  return value->is_string() ? value->get<std::string>() : std::string(fallback);
}

int JsonReader::choice(std::string_view key, std::initializer_list<std::string_view> choices,
                       int fallback) {
  const json::Value* value = find(key);
  if (value == nullptr && fallback >= 0) return fallback;
  std::string rule;
  int index = 0;
  for (const std::string_view name : choices) {
    if (value != nullptr && value->is_string() && value->get_ref<const std::string&>() == name) {
      return index;
    }
    rule += (rule.empty() ? "\"" : " or \"") + std::string(name) + "\"";
    ++index;
  }
  require(false, key, rule);
  return 0;
}

void JsonReader::require(bool condition, std::string_view key, std::string_view rule) {
  if (condition || error_) return;
  const auto it = members_.find(key);
  const std::string found = it == members_.end() ? "missing" : json::shown(*it->second);
  fail(quoted(key) + " is " + found + ", must be " + std::string(rule));
}

void JsonReader::fail(std::string message) {
  if (!error_) error_ = invalid_argument(std::move(message));
}

std::vector<std::string> JsonReader::unread_keys() const {
  std::vector<std::string> unread;
  for (const auto& member : object_.items()) {
    if (known_.find(member.key()) == known_.end()) unread.push_back(member.key());
  }
  return unread;
}

void JsonReader::refuse_unread(std::string_view rule) {
  for (const std::string& unknown : unread_keys()) {
    const json::Value* value = find(unknown);
    if (value == nullptr || (value->is_array() && value->empty())) continue;
    require(false, unknown, rule);
  }
}

std::string JsonReader::quoted(std::string_view key) const {
  return json::shown_text(prefix_ + std::string(key));
}

}  // namespace fathom::config
