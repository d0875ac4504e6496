#pragma once
// What a speculating server's drafts did during a load test, by what /server_info said before and after it.
//
//   Acceptance drafts = acceptance(info_before, info_after);
//   if (drafts.length) print(*drafts.length, drafts.simulated);
//
// Pure functions.

#include <cstdint>
#include <optional>

#include "base/json_fwd.h"

namespace fathom::apps {

struct Acceptance {
  // Tokens of a verifying step of one request. None: the server does not speculate, or verified nothing. A server
  // that tells no counts (SGLang) tells the mean since its start.
  std::optional<double> length{};
  std::optional<double> rate{};  // accepted part of the drafts verified
  std::optional<int64_t> num_verify_steps{};
  bool simulated = false;  // the drafts were not judged by a model
};

Acceptance acceptance(const json::Value& info_before, const json::Value& info_after);

}  // namespace fathom::apps
