#pragma once
// trace: a profiler for the program itself. While recording is on, spans and instants of all threads go to
// buffers of bounded size; stop() gives them as Chrome trace JSON (chrome://tracing, ui.perfetto.dev). While
// it is off a span costs one relaxed load.
//
//   trace::set_thread_name("engine");
//   { trace::Span span("sched", "plan");  ...  span.arg("slices", num_slices); }
//   trace::instant("sched", "retract");
//   Result<std::string> missing = trace::start({.max_events_per_thread = 65536});
//   ...
//   std::string json = trace::stop();
//
// Categories, names and argument keys are string literals: only the pointers are kept. No prompt or output
// text goes into a trace. A span is recorded when it ends, if recording was on since it began.
// A device's kernels and copies are in it too where its backend has a recorder (base/device_trace.h); those launched
// inside a span named kEnqueueSpan belong to the step that it has as an argument.
// Thread-safe. A buffer belongs to the registry of threads and outlives its thread until the next start().

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::trace {

struct TraceOptions {
  int64_t max_events_per_thread = 1 << 16;  // >= 1; what comes after is dropped and counted
  int64_t max_events = 1 << 20;             // of all threads; an event takes 64 bytes
  int64_t max_device_events = 1 << 20;      // an event takes 80 bytes, and 200 as JSON
};

inline constexpr std::string_view kEnqueueSpan = "enqueue", kStepArg = "step";

// Somebody else who wants to hear of spans as they begin and end, in their threads, whether or not a trace is
// recorded. Between the two calls of a span those inside it come in pairs.
struct SpanListener {
  void (*begin)(const char* category, const char* name) = nullptr;
  void (*end)() = nullptr;
};

namespace detail {

// 0 = nobody listens. Else twice the number of the recording, 0 = none, and 1 where there is a SpanListener.
extern std::atomic<int64_t> listening;

struct Arg {
  const char* key = nullptr;
  int64_t value = 0;
};

struct Event {
  const char* category = nullptr;
  const char* name = nullptr;
  std::chrono::steady_clock::time_point begin{};
  int64_t duration_ns = -1;  // -1 = an instant
  Arg args[2];
};

void begin_heard(const Event& event);
void record(int64_t recording, const Event& event);

}  // namespace detail

inline bool recording() { return detail::listening.load(std::memory_order_relaxed) > 1; }

// The name of the calling thread in traces; "thread" without one. The system shows its first 15 characters, for which
// "runner of rank 1" is "runner 1".
void set_thread_name(std::string name);

// From construction to destruction.
class Span {
 public:
  Span(const char* category, const char* name)
      : listening_(detail::listening.load(std::memory_order_relaxed)) {
    if (listening_ == 0) return;
    event_.category = category;
    event_.name = name;
    event_.begin = std::chrono::steady_clock::now();
    if (listening_ & 1) detail::begin_heard(event_);
  }
  ~Span() {
    if (listening_ != 0) finish();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Up to two numbers that the viewer shows with the span; more are ignored.
  void arg(const char* key, int64_t value);

 private:
  void finish();
  const int64_t listening_;
  detail::Event event_;
};

// A moment without length.
void instant(const char* category, const char* name);

// One without functions ends the listening. Called while there are no spans.
void set_listener(const SpanListener& listener);

// What is missing in the trace, a sentence for people: why there is nothing of the device. Empty = nothing is.
// Error kResourceEmpty when a recording is on already; kInvalidArgument when an option is out of range. The first
// start with a device may take half a second.
Result<std::string> start(const TraceOptions& options);
// Ends the recording and returns it; "otherData" counts events that were dropped and says what is missing. An empty
// trace when none was on.
std::string stop();

}  // namespace fathom::trace
