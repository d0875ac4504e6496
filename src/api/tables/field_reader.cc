#include "api/tables/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "api/tables/field_check.h"
#include "base/check.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

// Up to here every integer is a double, and a double without a fraction is the integer that was written.
constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

// Of one request: a body of nothing but unknown names costs no more than this.
constexpr size_t kMaxSkippedNames = 16;

// 2 and not 2.0, 0.5 and not 0.500000.
std::string shown_number(double value) { return json::dump(json::Value(value)); }

std::string shown_bound(double value) {
  const bool is_whole = std::abs(value) <= kMaxExactInteger && std::trunc(value) == value;
  return is_whole ? std::to_string(static_cast<int64_t>(value)) : shown_number(value);
}

}  // namespace

std::optional<int64_t> integer_in(const json::Value& value, IntRange range) {
  std::optional<int64_t> whole;
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      whole = static_cast<int64_t>(number);
    }
  } else if (value.is_number_integer()) {
    whole = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::abs(number) <= kMaxExactInteger && std::trunc(number) == number) {
      whole = static_cast<int64_t>(number);
    }
  }
  return whole && range.contains(*whole) ? whole : std::nullopt;
}

std::optional<double> number_in(const json::Value& value, const NumberRange& range) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  // Written so that NaN fails.
  const bool is_above = range.is_min_included ? number >= range.min : number > range.min;
  return is_above && number <= range.max ? std::optional(number) : std::nullopt;
}

std::string shown(const json::Value& value) {
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  return json::shown(value);
}

ApiError broken_body(const Error& error) {
  if (error.code == ErrorCode::kTooLong) return body_too_large("the body is " + error.message);
  return invalid_parameter("", "the body is " + error.message);
}

ApiError broken_rule(const std::string& path, const json::Value& value, std::string_view rule) {
  return invalid_parameter(path, path + " is " + shown(value) + ", must be " + std::string(rule));
}

std::string shown_name(std::string_view name) {
  std::string shown = json::shown_text(name);
  shown.erase(shown.rfind('"'), 1);
  return shown.substr(1);
}

std::string rule_of(IntRange range) {
  return "an integer in [" + std::to_string(range.min) + ", " + std::to_string(range.max) + "]";
}

std::string element_path(const std::string& path, size_t i) {
  return path + "[" + std::to_string(i) + "]";
}

void FieldProblem::skip_field(std::string_view place, const FieldRule& rule) {
  if (policy_.log == nullptr || std::ranges::find(skipped_rules_, &rule) != skipped_rules_.end())
    return;
  skipped_rules_.push_back(&rule);
  std::string name = place.empty() ? "" : std::string(place) + ".";
  policy_.log->add({.kind = SkippedField::Kind::kWithoutEffect,
                    .endpoint = policy_.endpoint,
                    .name = name.append(rule.name),
                    .why = rule.about});
}

void FieldProblem::skip_unknown(std::string_view name) {
  skip_named(SkippedField::Kind::kUnknown, name);
}

void FieldProblem::skip_tool(std::string_view type) { skip_named(SkippedField::Kind::kTool, type); }

void FieldProblem::skip_excess(std::string_view field) {
  skip_named(SkippedField::Kind::kLowered, field);
}

void FieldProblem::skip_named(SkippedField::Kind kind, std::string_view name) {
  if (policy_.log == nullptr || skipped_names_.size() == kMaxSkippedNames) return;
  std::pair<SkippedField::Kind, std::string> skipped(kind, shown_name(name));
  if (std::ranges::find(skipped_names_, skipped) != skipped_names_.end()) return;
  policy_.log->add({.kind = kind, .endpoint = policy_.endpoint, .name = skipped.second, .why = {}});
  skipped_names_.push_back(std::move(skipped));
}

FieldReader::FieldReader(const json::Value& object, std::string path, const FieldTable& table,
                         FieldProblem& problem)
    : object_(&object), path_(std::move(path)), table_(&table), problem_(problem) {
  check_names(object, path_, table, problem);
  if (!problem) sort_members();
}

FieldReader::FieldReader(const json::Value& object, std::string path, FieldProblem& problem)
    : object_(&object), path_(std::move(path)), problem_(problem) {
  sort_members();
}

// An object may hold a million names that nobody asks for: only those of the table are sorted.
void FieldReader::sort_members() {
  const auto& members = object_->get_ref<const json::Value::object_t&>();
  if (members.size() <= kMaxLinearKeys) return;
  for (const auto& [key, value] : members) {
    if (table_ == nullptr || table_->find(key) != nullptr) members_.emplace_back(key, &value);
  }
  std::sort(members_.begin(), members_.end(), has_lower_key);
  is_sorted_ = true;
}

FieldReader::FieldReader(json::Members& body, FieldProblem& problem)
    : body_(&body), problem_(problem) {}

FieldReader::FieldReader(json::Members& body, const FieldTable& table, FieldProblem& problem)
    : FieldReader(body, problem) {
  table_ = &table;
  check_names(body, table, problem);
}

const json::Value* FieldReader::find(std::string_view key) const {
  const FieldRule* rule = table_ != nullptr ? table_->find(key) : nullptr;
  FATHOM_CHECK(table_ == nullptr || (rule != nullptr && rule->use == FieldUse::kHonoured),
               key << " is read, but " << table_->name() << " does not honour it");
  const json::Value* value = nullptr;
  if (body_ != nullptr) {
    const Result<const json::Value*> built = body_->find(key);
    if (!built) problem_.set(broken_body(built.error()));
    value = built ? *built : nullptr;
  } else if (is_sorted_) {
    const auto found =
        std::lower_bound(members_.begin(), members_.end(), Member{key, nullptr}, has_lower_key);
    if (found != members_.end() && found->first == key) value = found->second;
  } else {
    for (const auto& member : object_->get_ref<const json::Value::object_t&>()) {
      if (member.first == key) value = &member.second;
    }
  }
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::string FieldReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

std::optional<int> FieldReader::integer(std::string_view key, IntRange range) {
  FATHOM_DCHECK(
      range.min >= std::numeric_limits<int>::min() && range.max <= std::numeric_limits<int>::max(),
      "range of " << key << " does not fit int");
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = integer_in(*value, range);
  if (!number) {
    fail(key, rule_of(range));
    return std::nullopt;
  }
  return static_cast<int>(*number);
}

std::optional<uint64_t> FieldReader::seed(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  const std::optional<int64_t> number = integer_in(
      *value, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()});
  if (!number) fail(key, "an integer of 64 bits");
  return number ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

std::optional<float> FieldReader::number(std::string_view key, const NumberRange& range) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> number = number_in(*value, range);
  if (!number) {
    fail(key, std::string("a number in ") + (range.is_min_included ? "[" : "(") +
                  shown_bound(range.min) + ", " + shown_bound(range.max) + "]");
    return std::nullopt;
  }
  const auto narrow = static_cast<float>(*number);
  // A bound that is not included stays so when a tiny number rounds to it.
  const bool is_at_bound = !range.is_min_included && narrow <= static_cast<float>(range.min);
  return is_at_bound ? std::numeric_limits<float>::min() : narrow;
}

std::optional<bool> FieldReader::boolean(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    fail(key, "true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> FieldReader::text(std::string_view key, size_t max_bytes) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
    fail(key, "a string of at most " + std::to_string(max_bytes) + " bytes");
    return std::nullopt;
  }
  return value->get<std::string>();
}

const json::Value* FieldReader::array(std::string_view key, size_t max_items) {
  const json::Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array() || value->size() > max_items) {
    fail(key, "an array of at most " + std::to_string(max_items));
    return nullptr;
  }
  return value;
}

const json::Value* FieldReader::object(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    fail(key, "an object");
    return nullptr;
  }
  return value;
}

void FieldReader::fail(std::string_view key, std::string_view rule) {
  problem_.set(broken_rule(path_of(key), *find(key), rule));
}

void FieldReader::fail_missing(std::string_view key) {
  fail_with(key, path_of(key) + " is missing");
}

void FieldReader::fail_with(std::string_view key, std::string message) {
  problem_.set(invalid_parameter(path_of(key), std::move(message)));
}

}  // namespace fathom::api
