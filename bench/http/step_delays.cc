#include "bench/http/step_delays.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace fathom::bench {
namespace {

double seconds_of(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// A time at which a step ended, or slightly before one.
double grid_start(const std::vector<const Arrivals*>& streams, double step) {
  double earliest = std::numeric_limits<double>::infinity();
  for (const Arrivals* arrivals : streams) {
    if (!arrivals->empty()) earliest = std::min(earliest, seconds_of(arrivals->front()));
  }
  // Tokens that were faster than that first one are just below a multiple of the step.
  double shift = 0;
  for (const Arrivals* arrivals : streams) {
    for (const Clock::time_point arrival : *arrivals) {
      const double steps = (seconds_of(arrival) - earliest) / step;
      const double fraction = steps - std::floor(steps);
      if (fraction > 0.9) shift = std::min(shift, (fraction - 1) * step);
    }
  }
  return earliest + shift;
}

// The step of the stream's first token: no token may come before its step has ended.
double first_step(const Arrivals& arrivals, double start, double step) {
  double first = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < arrivals.size(); ++k) {
    const double steps = (seconds_of(arrivals[k]) - start) / step;
    first = std::min(first, std::floor(steps + 1e-6) - static_cast<double>(k));
  }
  return first;
}

double percentile_ms(std::vector<double>& seconds, double share) {
  if (seconds.empty()) return 0;
  const auto rank = static_cast<size_t>(share * static_cast<double>(seconds.size() - 1));
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(rank),
                   seconds.end());
  return seconds[rank] * 1e3;
}

}  // namespace

StepDelays step_delays(const std::vector<const Arrivals*>& streams,
                       std::chrono::microseconds step_time) {
  const double step = std::chrono::duration<double>(step_time).count();
  const double start = grid_start(streams, step);
  std::vector<double> delays;
  std::vector<int64_t> steps;
  std::unordered_map<int64_t, double> fastest;
  for (const Arrivals* arrivals : streams) {
    const double first = first_step(*arrivals, start, step);
    for (size_t k = 0; k < arrivals->size(); ++k) {
      const double step_idx = first + static_cast<double>(k);
      delays.push_back(seconds_of((*arrivals)[k]) - start - step_idx * step);
      steps.push_back(static_cast<int64_t>(step_idx));
      const auto [entry, is_new] = fastest.emplace(steps.back(), delays.back());
      if (!is_new) entry->second = std::min(entry->second, delays.back());
    }
  }
  std::vector<double> spreads(delays.size());
  for (size_t i = 0; i < delays.size(); ++i) spreads[i] = delays[i] - fastest.at(steps[i]);
  return {.num_tokens = static_cast<int64_t>(delays.size()),
          .p50_ms = percentile_ms(delays, 0.5),
          .p99_ms = percentile_ms(delays, 0.99),
          .p999_ms = percentile_ms(delays, 0.999),
          .max_ms = percentile_ms(delays, 1),
          .spread_p99_ms = percentile_ms(spreads, 0.99)};
}

}  // namespace fathom::bench
