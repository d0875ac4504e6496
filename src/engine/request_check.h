#pragma once
// Whether a request can run at all on a runner: its parameters are in range, and its longest outcome fits the
// context and the cache.
//
//   if (Status status = check_request(request, runner.info()); !status) return status;
//
// Depends on nothing that changes.

#include "base/result.h"
#include "core/request.h"
#include "runner/runner.h"

namespace fathom::engine {

Status check_request(const core::Request& request, const runner::RunnerInfo& info);

}  // namespace fathom::engine
