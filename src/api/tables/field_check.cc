#include "api/tables/field_check.h"

#include <algorithm>
#include <string_view>

#include "api/tables/field_reader.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

std::string path_to(const std::string& path, std::string_view name) {
  return path.empty() ? shown_name(name) : path + "." + shown_name(name);
}

ApiError unknown_field(const std::string& path, std::string_view name, const FieldTable& table) {
  const std::string where = path_to(path, name);
  std::string message = "unknown field '" + where + "'";
  if (const FieldRule* place = table.place_of(name)) {
    message += "; it belongs in '" + std::string(place->name) + "'";
  } else if (const std::string_view nearest = table.nearest(name); !nearest.empty()) {
    message += "; did you mean '" + std::string(nearest) + "'?";
  } else {
    message +=
        ": leave it out (started with --unknown-fields ignore, the server skips such fields)";
  }
  ApiError error = invalid_parameter(where, std::move(message));
  error.code = "unknown_parameter";
  return error;
}

bool is_empty(const json::Value& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

bool asks_for_something(const json::Value& value, const FieldRule& rule) {
  if (is_empty(value)) return false;
  if (rule.json.empty()) return true;
  const Result<json::Value> neutral = json::parse(rule.json);
  FATHOM_CHECK(neutral && neutral->is_array(), rule.name << ": " << rule.json << " is no array");
  return std::ranges::find(*neutral, value) == neutral->end();
}

void check_refused(const json::Value& value, const std::string& path, const FieldRule& rule,
                   FieldProblem& problem) {
  if (!asks_for_something(value, rule)) return;
  const std::string where = path_to(path, rule.name);
  ApiError error = invalid_parameter(
      where, where + " is " + shown(value) + ", but " + std::string(rule.about) + ": leave it out");
  error.code = "unsupported_parameter";
  problem.set(std::move(error));
}

void take_unknown(const std::string& path, std::string_view name, const FieldTable& table,
                  FieldProblem& problem) {
  if (problem.refuses_unknown()) {
    problem.set(unknown_field(path, name, table));
  } else {
    problem.skip_unknown(name);
  }
}

}  // namespace

void check_names(const json::Value& object, const std::string& path, const FieldTable& table,
                 FieldProblem& problem) {
  for (const auto& [name, value] : object.get_ref<const json::Value::object_t&>()) {
    if (problem) return;
    const FieldRule* rule = table.find(name);
    if (rule != nullptr && rule->use == FieldUse::kRefused) {
      check_refused(value, path, *rule, problem);
    } else if (rule != nullptr && rule->use == FieldUse::kWithoutEffect && !is_empty(value)) {
      problem.skip_field(table.name(), *rule);
    } else if (rule == nullptr && !value.is_null()) {
      take_unknown(path, name, table, problem);
    }
  }
}

void check_names(json::Members& body, const FieldTable& table, FieldProblem& problem) {
  for (size_t i = 0; i < body.size() && !problem; ++i) {
    if (body.is_null(i)) continue;
    const FieldRule* rule = table.find(body.name(i));
    if (rule != nullptr && rule->use == FieldUse::kRefused) {
      const Result<const json::Value*> value = body.find(rule->name);
      if (!value) return problem.set(broken_body(value.error()));
      check_refused(**value, "", *rule, problem);
    } else if (rule != nullptr && rule->use == FieldUse::kWithoutEffect) {
      problem.skip_field("", *rule);
    } else if (rule == nullptr) {
      take_unknown("", body.name(i), table, problem);
    }
  }
}

}  // namespace fathom::api
