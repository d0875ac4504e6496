#include "tests/api/parameter_field.h"

#include <algorithm>

namespace fathom::api::tests {

Value number(int64_t value) {
  return number(std::to_string(value), static_cast<long double>(value));
}

namespace {

std::vector<Value> common_values() {
  return {number(-1),
          number(0),
          number(1),
          number(2),
          number(200),
          number("2147483647", 2147483647.0L),
          number("2147483648", 2147483648.0L),
          number("-2147483649", -2147483649.0L),
          number("4294967296", 4294967296.0L),
          number("9223372036854775807", 9223372036854775807.0L),
          number("9223372036854775808", 9223372036854775808.0L),
          number("-9223372036854775809", -9223372036854775809.0L),
          number("18446744073709551616", 18446744073709551616.0L),
          number("1.5", 1.5L),
          number("-0.5", -0.5L),
          number("2.0", 2.0L),
          number("1e308", 1e308L),
          number("-1e308", -1e308L),
          number("1e20", 1e20L),
          number("1e-320", 1e-320L),
          other("\"5\""),
          other("\"\""),
          other("\"" + std::string(300, 'x') + "\""),
          other("true"),
          other("false"),
          other("null"),
          other("[]"),
          other("{}"),
          other("[1]"),
          other("[[]]"),
          other("[\"5\"]"),
          other(R"({"a": 1})"),
          other(R"({"a": {"b": [1, {"c": null}]}})"),
          not_json("1e999"),
          not_json("NaN"),
          not_json("-Infinity"),
          not_json("01"),
          not_json("0x10"),
          not_json("+1"),
          not_json("'5'"),
          not_json("")};
}

bool accepts(const Rule& rule, const Value& value) {
  const bool is_above =
      value.number && (rule.is_min_included ? *value.number >= rule.min : *value.number > rule.min);
  const bool is_inside = is_above && *value.number <= rule.max;
  switch (rule.kind) {
    case Rule::Kind::kInteger:
      return is_inside && value.is_whole();
    case Rule::Kind::kNumber:
      return is_inside;
    case Rule::Kind::kBoolean:
      return value.text == "true" || value.text == "false";
    case Rule::Kind::kText:
      return value.is_string() && value.num_bytes() >= rule.min_bytes &&
             value.num_bytes() <= rule.max_bytes;
    case Rule::Kind::kUnset:
      return value.text == "false" || value.text == "\"\"" || value.text == "[]" ||
             value.text == "{}";
    case Rule::Kind::kAnything:
      return true;
    case Rule::Kind::kNothing:
      return false;
  }
  return false;
}

}  // namespace

std::vector<Value> values_of(const Field& field) {
  std::vector<Value> values = common_values();
  const Rule& rule = field.rule;
  const auto add = [&](long double value) {
    // Within 2^53 or at the ends of 32 bits: exact.
    if (value >= -9e15L && value <= 9e15L) values.push_back(number(static_cast<int64_t>(value)));
  };
  if (rule.kind == Rule::Kind::kInteger || rule.kind == Rule::Kind::kNumber) {
    for (const long double value : {rule.min - 1, rule.min, rule.max, rule.max + 1}) add(value);
  }
  if (rule.kind == Rule::Kind::kNumber) {
    const long double middle = (rule.min + rule.max) / 2;
    values.push_back(number(std::to_string(static_cast<double>(middle)), middle));
    const long double above = rule.max + 0.0625L, below = rule.min - 0.0625L;
    values.push_back(number(std::to_string(static_cast<double>(above)), above));
    values.push_back(number(std::to_string(static_cast<double>(below)), below));
  }
  if (rule.kind == Rule::Kind::kText) {
    for (const size_t size : {rule.max_bytes, rule.max_bytes + 1}) {
      if (size < 100'000) values.push_back(other("\"" + std::string(size, 'a') + "\""));
    }
  }
  values.insert(values.end(), field.more_values.begin(), field.more_values.end());
  return values;
}

ParameterCase case_of(const Endpoint& endpoint, const Field& field, const Value& value) {
  const std::string key = field.key.empty() ? field.name : field.key;
  const std::string fixed = field.fixed.empty() ? endpoint.fixed : field.fixed;
  ParameterCase result{
      .path = std::string(endpoint.path),
      .field = field.name,
      .value = value.text,
      .body = "{" + fixed + "\"" + key + "\": " + field.before + value.text + field.after + "}"};
  if (!value.is_json) {
    result.status = 400;
    return result;
  }
  const auto exception = std::ranges::find(field.exceptions, value.text, &Except::text);
  if (exception != field.exceptions.end()) {
    result.status = exception->status;
    if (result.status != 200) {
      result.param = exception->param.empty() ? field.name : exception->param;
    }
  } else if (value.text != "null" && !accepts(field.rule, value)) {
    result.status = 400;
    result.param = field.name;
  }
  return result;
}

Field model_field() {
  const std::string long_name = "\"" + std::string(300, 'x') + "\"";
  return {.name = "model",
          .rule = texts(0, 0),
          .exceptions = {{"\"5\"", 404}, {long_name, 404}, {"\"a\"", 404}, {"\"default\"", 200}},
          .more_values = {other("\"default\"")}};
}

void append_unsupported(std::vector<Field>& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) fields.push_back({.name = name, .rule = unset()});
}

}  // namespace fathom::api::tests
