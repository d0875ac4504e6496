#pragma once
// The bodies of POST /pause_generation and /continue_generation. Without one they are as {}.
//
//   Parsed<PauseRequest> parsed = parse_pause_request(body, model);
//
// Pure, thread-safe.

#include <optional>
#include <string_view>

#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

// What becomes of the requests that are there: they end, keep what they have, or give it back and are computed again.
struct PauseRequest {
  enum class Mode { kAbort, kInPlace, kRetract };
  Mode mode = Mode::kAbort;
};

Parsed<PauseRequest> parse_pause_request(std::string_view body, const ServedModel& model);
// It asks for nothing; what is wrong with it, if anything.
std::optional<ApiError> check_continue_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
