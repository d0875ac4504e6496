#pragma once
// What the tables of parameter_cases.cc are written in: values as JSON text, rules that say which of them a
// field accepts, fields and endpoints; and what makes cases of them.
//
//   Field field{.name = "top_p", .rule = numbers(0, 1, /*is_min_included=*/false)};
//   for (const Value& value : values_of(field)) cases.push_back(case_of(endpoint, field, value));
//
// Plain data and pure functions.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/api/parameter_cases.h"

namespace fathom::api::tests {

// A value as JSON text and what a rule can ask about it.
struct Value {
  std::string text;
  std::optional<long double> number = std::nullopt;  // exact for every integer of 64 bits
  bool is_json = true;
  bool is_whole() const { return number && *number == static_cast<long double>(trunc_of(*number)); }
  bool is_string() const { return !text.empty() && text.front() == '"'; }
  size_t num_bytes() const { return text.size() - 2; }  // of a string without escapes

 private:
  static long double trunc_of(long double x) {
    // Beyond 2^64 there are no fractions, and no integer type to ask.
    constexpr long double kLimit = 18446744073709551616.0L;
    if (x >= kLimit || x <= -kLimit) return x;
    return x < 0 ? -static_cast<long double>(static_cast<uint64_t>(-x))
                 : static_cast<long double>(static_cast<uint64_t>(x));
  }
};

inline Value number(const std::string& text, long double value) {
  return {.text = text, .number = value};
}
Value number(int64_t value);
inline Value other(const std::string& text) { return {.text = text}; }
inline Value not_json(const std::string& text) {
  return {.text = text, .number = std::nullopt, .is_json = false};
}

// What a field accepts.
struct Rule {
  enum class Kind { kInteger, kNumber, kBoolean, kText, kUnset, kAnything, kNothing };
  Kind kind = Kind::kNothing;
  long double min = 0, max = 0;
  bool is_min_included = true;
  size_t min_bytes = 0, max_bytes = 0;
};

inline Rule integers(long double min, long double max) {
  return {.kind = Rule::Kind::kInteger, .min = min, .max = max};
}
inline Rule numbers(long double min, long double max, bool is_min_included = true) {
  return {.kind = Rule::Kind::kNumber, .min = min, .max = max, .is_min_included = is_min_included};
}
inline Rule booleans() { return {.kind = Rule::Kind::kBoolean}; }
inline Rule texts(size_t min_bytes, size_t max_bytes) {
  return {.kind = Rule::Kind::kText, .min_bytes = min_bytes, .max_bytes = max_bytes};
}
inline Rule unset() { return {.kind = Rule::Kind::kUnset}; }  // null, false, "", [], {}
inline Rule anything() { return {.kind = Rule::Kind::kAnything}; }
inline Rule nothing() { return {.kind = Rule::Kind::kNothing}; }

// An answer for one value that the rule does not give.
struct Except {
  std::string text;
  int status;
  std::string param = {};
};

struct Field {
  std::string name;  // as errors name it
  Rule rule;
  std::vector<Except> exceptions = {};
  std::vector<Value> more_values = {};
  // The key of the body and what surrounds the value there; empty key = name.
  std::string key = {}, before = {}, after = {};
  // Other fields, instead of those of the endpoint.
  std::string fixed = {};
};

struct Endpoint {
  std::string_view path;
  std::string fixed;  // the fields that every body has: "\"max_tokens\": 1, "
  std::vector<Field> fields;
};

// What several endpoints have: the model's name, and a field whose feature is not here.
Field model_field();
void append_unsupported(std::vector<Field>& fields, std::initializer_list<const char*> names);

// The endpoints that have files of their own.
Endpoint messages_endpoint(const CaseModel& model);
Endpoint responses_endpoint(const CaseModel& model);

// Common values of every kind, those at and beyond the bounds of the rule, and the field's own.
std::vector<Value> values_of(const Field& field);
ParameterCase case_of(const Endpoint& endpoint, const Field& field, const Value& value);

}  // namespace fathom::api::tests
