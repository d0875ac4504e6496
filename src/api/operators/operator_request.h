#pragma once
// The bodies of what operators ask for: /pause_generation, /continue_generation, /abort_request, /start_profile.
// Without one they are as {}.
//
//   Parsed<PauseRequest> parsed = parse_pause_request(body, model);
//
// Pure, thread-safe.

#include <optional>
#include <string>
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
// These ask for nothing; what is wrong with them, if anything.
std::optional<ApiError> check_continue_request(std::string_view body, const ServedModel& model);
std::optional<ApiError> check_start_profile_request(std::string_view body,
                                                    const ServedModel& model);

// The requests that end: all, or those whose rid begins with this, which is not empty.
struct AbortRequest {
  bool all = false;
  std::string rid;
};
Parsed<AbortRequest> parse_abort_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
