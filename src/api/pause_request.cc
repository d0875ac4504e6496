#include "api/pause_request.h"

#include "api/request_fields.h"
#include "api/tables/endpoint_fields.h"

namespace fathom::api {
namespace {

std::string_view object_of(std::string_view body) { return body.empty() ? "{}" : body; }

}  // namespace

Parsed<PauseRequest> parse_pause_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(object_of(body));
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  FieldProblem problem(policy_of("/pause_generation", model));
  FieldReader reader(std::get<json::Members>(members), pause_fields(), problem);
  PauseRequest request;
  if (const json::Value* mode = reader.find("mode")) {
    if (json::is_text(*mode, "in_place")) {
      request.mode = PauseRequest::Mode::kInPlace;
    } else if (json::is_text(*mode, "retract")) {
      request.mode = PauseRequest::Mode::kRetract;
    } else if (!json::is_text(*mode, "abort")) {
      reader.fail("mode", "abort, in_place or retract");
    }
  }
  if (problem) return problem.error();
  return request;
}

std::optional<ApiError> check_continue_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(object_of(body));
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  FieldProblem problem(policy_of("/continue_generation", model));
  const FieldReader reader(std::get<json::Members>(members), continue_fields(), problem);
  return problem ? std::optional(problem.error()) : std::nullopt;
}

}  // namespace fathom::api
