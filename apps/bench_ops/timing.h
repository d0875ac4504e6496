#pragma once
// The time of one call among many: the copies of a call in turn, captured together and replayed until the clock is
// fine enough.
//
//   const double seconds = seconds_per_call(calls, /*num_samples=*/15, *stream);
//
// REQUIRES: the stream's scratch is sealed.

#include <vector>

#include "apps/bench_ops/cases.h"

namespace fathom::apps {

// The median of the samples.
double seconds_per_call(const std::vector<OpCall>& calls, int num_samples, ops::Stream& stream);

}  // namespace fathom::apps
