#include "base/trace_json.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace fathom::trace::detail {
namespace {

constexpr int kHostPid = 1, kDevicePid = 2;
// The line above a device's streams: a bar for each step, from its first kernel to the end of its last.
constexpr int64_t kStepLine = 0;
// Lines of a device's streams: those of the next one come behind.
constexpr int64_t kLinesOfDevice = 100'000;
constexpr int64_t kNoStep = -1;

int64_t nanoseconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count();
}

// When and in which step a thread enqueued.
struct Enqueued {
  TimePoint begin{}, end{};
  int64_t step = kNoStep;
};
// In the order of time, which is that of their ends too: spans of one thread follow each other. Those of several, which
// are ranks, lie over one another.
using EnqueuedByThread = std::vector<std::vector<Enqueued>>;

EnqueuedByThread enqueued_steps(const Recording& recording) {
  EnqueuedByThread by_thread;
  for (const ThreadRecording& thread : recording.threads) {
    std::vector<Enqueued> steps;
    for (const Event& event : thread.events) {
      if (event.duration_ns < 0 || std::string_view(event.name) != kEnqueueSpan) continue;
      for (const Arg& arg : event.args) {
        if (arg.key == nullptr || std::string_view(arg.key) != kStepArg) continue;
        const TimePoint end = event.begin + std::chrono::nanoseconds(event.duration_ns);
        steps.push_back({.begin = event.begin, .end = end, .step = arg.value});
      }
    }
    std::sort(steps.begin(), steps.end(),
              [](const Enqueued& a, const Enqueued& b) { return a.begin < b.begin; });
    if (!steps.empty()) by_thread.push_back(std::move(steps));
  }
  return by_thread;
}

int64_t step_at(const EnqueuedByThread& by_thread, TimePoint launched) {
  for (const std::vector<Enqueued>& steps : by_thread) {
    const auto after = std::upper_bound(
        steps.begin(), steps.end(), launched,
        [](TimePoint time, const Enqueued& enqueued) { return time < enqueued.begin; });
    if (after != steps.begin() && launched <= std::prev(after)->end) return std::prev(after)->step;
  }
  return kNoStep;
}

struct Head {
  int pid = kHostPid;
  int64_t tid = 0;
  const char* category = nullptr;
  const std::string& name;  // JSON already
  TimePoint begin{};
  int64_t duration_ns = -1;  // negative = a moment
};

class Writer {
 public:
  explicit Writer(TimePoint started) : started_(started) {}

  void name(const char* kind, int pid, int64_t tid, const std::string& name) {
    out_ += R"({"ph":"M","pid":)" + std::to_string(pid) + R"(,"tid":)" + std::to_string(tid) +
            R"(,"name":")" + kind + R"(","args":{"name":)" + json::dump(name) + "}},\n";
  }

  void begin_event(const Head& head) {
    const bool is_moment = head.duration_ns < 0;
    out_ += R"({"ph":")";
    out_ += is_moment ? R"(i","s":"t)" : "X";
    out_ += R"(","pid":)" + std::to_string(head.pid) + R"(,"tid":)" + std::to_string(head.tid) +
            R"(,"cat":)" + json::dump(head.category) + R"(,"name":)" + head.name + R"(,"ts":)";
    append_us(std::max<int64_t>(nanoseconds_between(started_, head.begin), 0));
    if (!is_moment) {
      out_ += R"(,"dur":)";
      append_us(head.duration_ns);
    }
    separator_ = R"(,"args":{)";
    has_args_ = false;
  }
  void arg(const char* key, const std::string& value) {
    out_ += separator_ + json::dump(key) + ':' + value;
    separator_ = ",";
    has_args_ = true;
  }
  void end_event() { out_ += has_args_ ? "}},\n" : "},\n"; }

  std::string finish(const json::Value& other_data) {
    out_.resize(out_.size() - 2);  // the last comma and line end
    return std::move(out_) +
           "\n],\"displayTimeUnit\":\"ms\",\"otherData\":" + json::dump(other_data) + "}\n";
  }

 private:
  void append_us(int64_t ns) {
    const std::string fraction = std::to_string(ns % 1000);
    out_ += std::to_string(ns / 1000) + '.' + std::string(3 - fraction.size(), '0') + fraction;
  }

  const TimePoint started_;
  std::string out_ = "{\"traceEvents\":[\n";
  std::string separator_;
  bool has_args_ = false;
};

void write_thread(const ThreadRecording& thread, Writer& writer) {
  writer.name("thread_name", kHostPid, thread.thread_id, thread.name);
  for (const Event& event : thread.events) {
    const std::string name = json::dump(event.name);
    writer.begin_event({.tid = thread.thread_id,
                        .category = event.category,
                        .name = name,
                        .begin = event.begin,
                        .duration_ns = event.duration_ns});
    for (const Arg& arg : event.args)
      if (arg.key != nullptr) writer.arg(arg.key, std::to_string(arg.value));
    writer.end_event();
  }
}

std::string triple(const std::array<int, 3>& of) {
  return '[' + std::to_string(of[0]) + ',' + std::to_string(of[1]) + ',' + std::to_string(of[2]) +
         ']';
}

struct Extent {
  TimePoint begin = TimePoint::max(), end = TimePoint::min();
};

class DeviceWriter {
 public:
  DeviceWriter(const Recording& recording, Writer& writer)
      : device_(*recording.device),
        started_(recording.started),
        steps_(enqueued_steps(recording)),
        writer_(writer) {
    for (const std::string& name : device_.names) names_.push_back(json::dump(name));
  }

  void write() {
    writer_.name("process_name", kDevicePid, kStepLine, device_.device);
    for (const DeviceEvent& event : device_.events) {
      // Launched before the recording began.
      if (event.begin >= started_) write_event(event);
    }
    for (const int64_t line : lines_) {
      const int64_t device = line / kLinesOfDevice, stream = line % kLinesOfDevice;
      const std::string of_device = device == 0 ? "" : "GPU " + std::to_string(device) + " ";
      writer_.name("thread_name", kDevicePid, line, of_device + "stream " + std::to_string(stream));
    }
    writer_.name("thread_name", kDevicePid, kStepLine, "steps");
    for (const auto& [step, extent] : extents_) {
      const std::string name = json::dump("step " + std::to_string(step));
      writer_.begin_event({.pid = kDevicePid,
                           .tid = kStepLine,
                           .category = "step",
                           .name = name,
                           .begin = extent.begin,
                           .duration_ns = nanoseconds_between(extent.begin, extent.end)});
      writer_.arg(kStepArg.data(), std::to_string(step));
      writer_.end_event();
    }
  }

 private:
  void write_event(const DeviceEvent& event) {
    const int64_t line = event.device * kLinesOfDevice + event.stream;
    lines_.insert(line);
    writer_.begin_event(
        {.pid = kDevicePid,
         .tid = line,
         .category = event.category,
         .name = names_.at(event.name_idx),
         .begin = event.begin,
         .duration_ns = std::max<int64_t>(nanoseconds_between(event.begin, event.end), 0)});
    const int64_t step = step_at(steps_, event.launched);
    if (step != kNoStep) {
      writer_.arg(kStepArg.data(), std::to_string(step));
      Extent& extent = extents_[step];
      extent.begin = std::min(extent.begin, event.begin);
      extent.end = std::max(extent.end, event.end);
    }
    if (event.num_bytes >= 0) {
      writer_.arg("bytes", std::to_string(event.num_bytes));
    } else {
      writer_.arg("grid", triple(event.grid));
      writer_.arg("block", triple(event.block));
    }
    writer_.end_event();
  }

  const DeviceRecording& device_;
  const TimePoint started_;
  const EnqueuedByThread steps_;
  Writer& writer_;
  std::vector<std::string> names_;  // as JSON
  std::set<int64_t> lines_;
  std::map<int64_t, Extent> extents_;  // of steps
};

}  // namespace

std::string to_json(const Recording& recording) {
  Writer writer(recording.started);
  writer.name("process_name", kHostPid, 0, "fathom");
  json::Value other = {{"dropped_events", recording.num_dropped}};
  for (const ThreadRecording& thread : recording.threads) write_thread(thread, writer);
  if (recording.device) {
    DeviceWriter(recording, writer).write();
    other["dropped_device_events"] = recording.device->num_dropped;
  }
  if (!recording.device_missing.empty()) other["device_missing"] = recording.device_missing;
  return writer.finish(other);
}

}  // namespace fathom::trace::detail
