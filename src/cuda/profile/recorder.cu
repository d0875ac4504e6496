// Kernels, copies and fills as CUPTI reports them.
//
// CUPTI asks for buffers and gives them back full, in threads of its own. Its records name the call of the host that
// launched them by a number ("correlation"); the call's own record has the time, and a graph's kernels all have the
// number of the graph's launch. GPU times come on the clock of spans, because CUPTI is told to use it.

#include "cuda/profile/profile.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "cuda/profile/kernel_name.h"
#include "cuda/profile/nvtx.h"

#if __has_include(<cupti.h>)

#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "cuda/profile/cupti.cuh"

namespace fathom::cuda {
namespace {

using trace::DeviceEvent;
using trace::TimePoint;

constexpr size_t kBufferBytes = 4 << 20, kBufferAlignment = 8;
// Names in records are gone when their module is, and a buffer that waits for others costs memory.
constexpr uint32_t kFlushMilliseconds = 100;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                         // The host's calls: when kernels were launched.
                                         CUPTI_ACTIVITY_KIND_RUNTIME};

TimePoint to_time(uint64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

uint64_t CUPTIAPI steady_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on device";
    default:
      return "copy";
  }
}

// What has come so far. CUPTI's callbacks take no argument, so there is one of it.
class Inbox {
 public:
  void clear(int64_t max_events) {
    const std::lock_guard lock(mutex_);
    recording_ = {};
    name_idx_.clear();
    correlations_.clear();
    launches_.clear();
    max_events_ = static_cast<size_t>(max_events);
  }

  void take(const Cupti& cupti, uint8_t* buffer, size_t valid_bytes) {
    const std::lock_guard lock(mutex_);
    CUpti_Activity* record = nullptr;
    while (cupti.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) take(*record);
    size_t num_lost = 0;
    if (cupti.num_dropped_records(nullptr, 0, &num_lost) == CUPTI_SUCCESS)
      recording_.num_dropped += static_cast<int64_t>(num_lost);
  }

  trace::DeviceRecording finish() {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < recording_.events.size(); ++i) {
      const auto launch = launches_.find(correlations_[i]);
      if (launch != launches_.end()) recording_.events[i].launched = launch->second;
    }
    launches_.clear();
    correlations_.clear();
    max_events_ = 0;  // what comes later belongs to no recording
    return std::move(recording_);
  }

 private:
  void take(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
        DeviceEvent event = event_of(kernel, "kernel", kernel.name);
        event.grid = {kernel.gridX, kernel.gridY, kernel.gridZ};
        event.block = {kernel.blockX, kernel.blockY, kernel.blockZ};
        return add(event, kernel.correlationId);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        DeviceEvent event = event_of(copy, "copy", copy_name(copy.copyKind));
        event.num_bytes = static_cast<int64_t>(copy.bytes);
        return add(event, copy.correlationId);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& fill = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        DeviceEvent event = event_of(fill, "fill", "fill");
        event.num_bytes = static_cast<int64_t>(fill.bytes);
        return add(event, fill.correlationId);
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME: {
        const auto& call = reinterpret_cast<const CUpti_ActivityAPI&>(record);
        if (launches_.size() < max_events_) launches_[call.correlationId] = to_time(call.start);
        return;
      }
      default:
        return;
    }
  }

  template <class Record>
  DeviceEvent event_of(const Record& record, const char* category, const char* name) {
    return {.category = category,
            .name_idx = index_of(name == nullptr ? "unknown" : name),
            .device = static_cast<int>(record.deviceId),
            .stream = record.streamId,
            .begin = to_time(record.start),
            .end = to_time(record.end)};
  }

  void add(const DeviceEvent& event, uint32_t correlation) {
    // Not over when the recording ended.
    if (event.begin == TimePoint() || event.end == TimePoint()) return;
    if (recording_.events.size() >= max_events_) {
      ++recording_.num_dropped;
      return;
    }
    recording_.events.push_back(event);
    correlations_.push_back(correlation);
  }

  size_t index_of(const char* name) {
    const auto [entry, is_new] = name_idx_.try_emplace(name, recording_.names.size());
    if (is_new) recording_.names.push_back(kernel_name(name));
    return entry->second;
  }

  std::mutex mutex_;
  size_t max_events_ = 0;
  trace::DeviceRecording recording_;
  std::unordered_map<std::string, size_t> name_idx_;  // by mangled name
  std::vector<uint32_t> correlations_;                // of each event
  std::unordered_map<uint32_t, TimePoint> launches_;
};

Inbox& inbox() {
  // Never destroyed: CUPTI's threads may outlive the statics of the program.
  static Inbox& instance = *new Inbox;
  return instance;
}

Cupti opened;  // written before CUPTI has callbacks

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* num_bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *num_bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  inbox().take(opened, buffer, valid_bytes);
  std::free(buffer);
}

class CuptiRecorder : public trace::DeviceRecorder {
 public:
  explicit CuptiRecorder(std::vector<std::string> libraries) : libraries_(std::move(libraries)) {}

  Status start(int64_t max_events) override {
    if (Status status = open(); !status) return status;
    inbox().clear(max_events);
    CUptiResult result = opened.flush_period(kFlushMilliseconds);
    for (const CUpti_ActivityKind kind : kKinds)
      if (result == CUPTI_SUCCESS) result = opened.enable(kind);
    if (result == CUPTI_SUCCESS) return {};
    disable();
    return Error{ErrorCode::kNotFound, "CUPTI does not record: " + opened.words_for(result)};
  }

  trace::DeviceRecording stop() override {
    // What is done; then, with nothing new beginning, what was under way.
    opened.flush_all(0);
    disable();
    opened.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    trace::DeviceRecording recording = inbox().finish();
    int device = 0;
    cudaGetDevice(&device);
    recording.device = "GPU " + std::to_string(device);
    return recording;
  }

 private:
  Status open() {
    if (is_open_) return {};
    Result<Cupti> cupti = open_cupti(libraries_);
    if (!cupti) return cupti.error();
    opened = *cupti;
    CUptiResult result = opened.register_clock(steady_ns);
    if (result == CUPTI_SUCCESS) result = opened.register_callbacks(give_buffer, take_buffer);
    if (result != CUPTI_SUCCESS)
      return Error{ErrorCode::kNotFound, "CUPTI does not start: " + opened.words_for(result)};
    is_open_ = true;
    return {};
  }

  // Kinds that are not on stay off; whatever goes wrong here, nothing is recorded.
  static void disable() {
    for (const CUpti_ActivityKind kind : kKinds) opened.disable(kind);
    opened.flush_period(0);
  }

  const std::vector<std::string> libraries_;
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<trace::DeviceRecorder> make_recorder(std::vector<std::string> libraries) {
  return std::make_unique<CuptiRecorder>(std::move(libraries));
}

}  // namespace fathom::cuda

#else

namespace fathom::cuda {
std::unique_ptr<trace::DeviceRecorder> make_recorder(std::vector<std::string>) { return nullptr; }
}  // namespace fathom::cuda

#endif

namespace fathom::cuda {
namespace {

// By its name where the system finds it, and where toolkits put it.
std::vector<std::string> cupti_libraries() {
  const std::string name = "libcupti.so." + std::to_string(CUDART_VERSION / 1000);
  std::vector<std::string> libraries = {name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const home = std::getenv(variable);
    if (home != nullptr) libraries.push_back(std::string(home) + "/lib64/" + name);
  }
  libraries.push_back("/usr/local/cuda/lib64/" + name);
  libraries.push_back("/usr/local/cuda/extras/CUPTI/lib64/" + name);
  return libraries;
}

}  // namespace

void join_traces() {
  name_spans_to_nvtx();
  static const std::unique_ptr<trace::DeviceRecorder> recorder = make_recorder(cupti_libraries());
  if (recorder != nullptr) trace::set_device_recorder(recorder.get());
}

}  // namespace fathom::cuda
