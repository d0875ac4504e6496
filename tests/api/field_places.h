#pragma once
// Where the objects of every FieldTable stand in a body: for tests that go through all fields of all tables.
//
//   for (const FieldPlace& place : field_places()) {
//     for (const FieldRule& rule : place.table().rules()) parse(place, body_with(place, rule.name, "5"), model);
//   }

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/served_model.h"
#include "api/tables/api_error.h"
#include "api/tables/field_table.h"

namespace fathom::api::tests {

struct FieldPlace {
  const FieldTable& (*table)();
  // The error, or nothing where the body is accepted.
  std::optional<ApiError> (*parse)(std::string_view body, const ServedModel& model);
  std::string before, after;                              // around the object
  std::vector<std::pair<std::string, std::string>> base;  // members of an object that is accepted
  std::string path;                       // of the object: "messages[0]"; empty = the body
  std::string_view endpoint = "another";  // "/v1/messages", "/v1/responses"
};

std::vector<FieldPlace> field_places();
// Those of them in /v1/messages and /v1/responses.
std::vector<FieldPlace> form_places();

// The body with `name` set to `value` (JSON text) in the place's object, and the rest as it must be.
std::string body_with(const FieldPlace& place, std::string_view name, std::string_view value);

// "messages[0].name"
std::string path_in(const FieldPlace& place, std::string_view name);

}  // namespace fathom::api::tests
