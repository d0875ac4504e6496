#include "api/operators/operator_request.h"

#include <algorithm>

#include "api/request_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxActivities = 16, kMaxRidBytes = 1024;

// What is wrong with a body of these fields, whose table has the name of its path. `read` reads them.
template <class Read>
std::optional<ApiError> problem_in(std::string_view body, const FieldTable& fields,
                                   const ServedModel& model, const Read& read) {
  Parsed<json::Members> members = parse_body(body.empty() ? "{}" : body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  FieldProblem problem(policy_of(fields.name(), model));
  FieldReader reader(std::get<json::Members>(members), fields, problem);
  read(reader);
  return problem ? std::optional(problem.error()) : std::nullopt;
}

template <class T>
Parsed<T> unless(const std::optional<ApiError>& error, T request) {
  if (error) return *error;
  return request;
}

}  // namespace

Parsed<PauseRequest> parse_pause_request(std::string_view body, const ServedModel& model) {
  PauseRequest request;
  const auto error = problem_in(body, pause_fields(), model, [&](FieldReader& reader) {
    const json::Value* mode = reader.find("mode");
    if (mode == nullptr || json::is_text(*mode, "abort")) return;
    if (json::is_text(*mode, "in_place")) {
      request.mode = PauseRequest::Mode::kInPlace;
    } else if (json::is_text(*mode, "retract")) {
      request.mode = PauseRequest::Mode::kRetract;
    } else {
      reader.fail("mode", "abort, in_place or retract");
    }
  });
  return unless(error, request);
}

std::optional<ApiError> check_continue_request(std::string_view body, const ServedModel& model) {
  return problem_in(body, continue_fields(), model, [](const FieldReader&) {});
}

std::optional<ApiError> check_start_profile_request(std::string_view body,
                                                    const ServedModel& model) {
  return problem_in(body, start_profile_fields(), model, [](FieldReader& reader) {
    const json::Value* activities = reader.array("activities", kMaxActivities);
    if (activities == nullptr) return;
    const bool are_recorded = std::ranges::all_of(*activities, [](const json::Value& one) {
      return json::is_text(one, "CPU") || json::is_text(one, "GPU");
    });
    if (!are_recorded) reader.fail("activities", "a list of CPU and GPU");
  });
}

Parsed<AbortRequest> parse_abort_request(std::string_view body, const ServedModel& model) {
  AbortRequest request;
  const auto error = problem_in(body, abort_fields(), model, [&](FieldReader& reader) {
    request.all = reader.boolean("abort_all").value_or(false);
    request.rid = reader.text("rid", kMaxRidBytes).value_or("");
    if (request.all || !request.rid.empty()) return;
    reader.fail_with("rid", "rid must be a text that is not empty");
  });
  return unless(error, request);
}

}  // namespace fathom::api
