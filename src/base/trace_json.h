#pragma once
// The Chrome trace JSON of a recording. Internal to trace.

#include <optional>
#include <string>
#include <vector>

#include "base/device_trace.h"
#include "base/trace.h"

namespace fathom::trace::detail {

struct ThreadRecording {
  int thread_id = 0;
  std::string name;
  std::vector<Event> events;
};

struct Recording {
  TimePoint started{};  // 0 in the trace
  std::vector<ThreadRecording> threads;
  int64_t num_dropped = 0;
  std::optional<DeviceRecording> device;
  std::string device_missing;  // why there is none, where there is a device
};

// Work of the device gets the step in whose enqueueing span it was launched (kEnqueueSpan).
std::string to_json(const Recording& recording);

}  // namespace fathom::trace::detail
