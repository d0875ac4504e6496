#pragma once
// What a device does while a trace is recorded: its kernels and copies, on the clock of the host's spans.
//
//   trace::set_device_recorder(&recorder);   // at start-up; trace::start() and stop() do the rest
//
// The recorder stays for the rest of the program. start() and stop() come in turn, one at a time, from any thread.

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::trace {

using TimePoint = std::chrono::steady_clock::time_point;

struct DeviceEvent {
  const char* category = nullptr;  // a literal: "kernel", "copy", "fill"
  size_t name_idx = 0;             // in DeviceRecording::names
  int device = 0;                  // its number, where there are several
  int64_t stream = 0;              // of the device
  // When the host enqueued it, as part of a graph or alone; the clock's epoch = not known.
  TimePoint launched{};
  TimePoint begin{}, end{};
  std::array<int, 3> grid{}, block{};  // of kernels
  int64_t num_bytes = -1;              // of copies and fills
};

struct DeviceRecording {
  std::string device{};              // what people call it: "GPU 0"
  std::vector<std::string> names{};  // each once
  std::vector<DeviceEvent> events{};
  int64_t num_dropped = 0;  // did not fit
};

class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;
  // An error is a sentence for people: why nothing of the device will be in the trace.
  virtual Status start(int64_t max_events) = 0;
  // REQUIRES: start() succeeded.
  virtual DeviceRecording stop() = 0;
};

// Null = there is no device to record, which is how a program begins.
void set_device_recorder(DeviceRecorder* recorder);

}  // namespace fathom::trace
