#pragma once
// How late tokens come, against the schedule of the simulated device. A step of the simulation takes exactly
// its time from the end of the step before, so steps end at start + m * step; every stream gets one token per
// step. The start is not told: it is taken from the earliest arrival of the run, relative to the grid, which
// comes while few streams are open and so within a millisecond of its step's end. A step that the server
// begins too late moves all later ones, and counts as delay of every later token.
//
//   StepDelays delays = step_delays(streams_arrivals, std::chrono::milliseconds(200));
//   delays.p99_ms
//
// No state.

#include <chrono>
#include <vector>

#include "base/clock.h"

namespace fathom::bench {

struct StepDelays {
  int64_t num_tokens = 0;
  double p50_ms = 0, p99_ms = 0, p999_ms = 0, max_ms = 0;
  // Against the earliest token of the same step instead.
  double spread_p99_ms = 0;
};

using Arrivals = std::vector<Clock::time_point>;  // of one stream's tokens

StepDelays step_delays(const std::vector<const Arrivals*>& streams, std::chrono::microseconds step);

}  // namespace fathom::bench
