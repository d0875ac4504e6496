#include "apps/bench_ops/timing.h"

#include <algorithm>
#include <cmath>

#include "apps/common/figures.h"
#include "base/clock.h"

namespace fathom::apps {
namespace {

// A sample takes about so long, beside which a clock and a launch are nothing.
constexpr double kSampleSeconds = 2e-3;
// Of quick calls, so that launching a graph hides behind the one before.
constexpr size_t kGraphCalls = 32;
constexpr int kMaxReplays = 64;

template <class Work>
double seconds_of(const Work& work, ops::Stream& stream) {
  const Stopwatch watch;
  work();
  stream.record()->wait();
  return watch.seconds();
}

size_t times_to_fill(double seconds, size_t most) {
  const double times = std::ceil(kSampleSeconds / std::max(seconds, 1e-9));
  return static_cast<size_t>(std::clamp(times, 1.0, static_cast<double>(most)));
}

}  // namespace

double seconds_per_call(const std::vector<OpCall>& calls, int num_samples, ops::Stream& stream) {
  const auto run_all = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) calls[i % calls.size()].run(stream);
  };
  run_all(calls.size());
  stream.synchronize();
  const double all_seconds = seconds_of([&] { run_all(calls.size()); }, stream);
  const size_t num_calls = std::max(
      calls.size(), times_to_fill(all_seconds / static_cast<double>(calls.size()), kGraphCalls));
  const std::unique_ptr<ops::Graph> graph = stream.capture([&] { run_all(num_calls); });
  const auto replay = [&](size_t times) {
    for (size_t i = 0; i < times; ++i) graph->replay(stream);
  };
  seconds_of([&] { replay(1); }, stream);
  const size_t replays = times_to_fill(seconds_of([&] { replay(1); }, stream), kMaxReplays);
  std::vector<double> samples;
  for (int i = 0; i < num_samples; ++i)
    samples.push_back(seconds_of([&] { replay(replays); }, stream) /
                      static_cast<double>(replays * num_calls));
  return median(samples);
}

}  // namespace fathom::apps
