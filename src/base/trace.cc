#include "base/trace.h"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/device_trace.h"
#include "base/mutex.h"
#include "base/trace_json.h"

namespace fathom::trace {
namespace detail {

std::atomic<int64_t> listening{0};

namespace {

// The events of one thread. The thread appends, stop() takes; both hold the mutex, which hardly ever waits.
struct Buffer {
  Mutex mutex;
  std::string thread_name FATHOM_GUARDED_BY(mutex) = "thread";
  int thread_id FATHOM_GUARDED_BY(mutex) = 0;
  bool thread_ended FATHOM_GUARDED_BY(mutex) = false;
  int64_t recording FATHOM_GUARDED_BY(mutex) = 0;  // the events are of this one
  std::vector<Event> events FATHOM_GUARDED_BY(mutex);
  int64_t num_dropped FATHOM_GUARDED_BY(mutex) = 0;
};

struct Threads {
  Mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers FATHOM_GUARDED_BY(mutex);
  int next_thread_id FATHOM_GUARDED_BY(mutex) = 1;
  int64_t last_recording FATHOM_GUARDED_BY(mutex) = 0;
  std::chrono::steady_clock::time_point started FATHOM_GUARDED_BY(mutex){};
  std::atomic<int64_t> max_events_per_thread{0}, num_events_left{0};
};

Threads& threads() {
  // Never destroyed: threads may end after the statics of the program.
  static Threads& instance = *new Threads;
  return instance;
}

// Registers the buffer of the calling thread and notes the thread's end.
class ThreadBuffer {
 public:
  ThreadBuffer() : buffer_(std::make_shared<Buffer>()) {
    Threads& all = threads();
    const MutexLock lock(all.mutex);
    buffer_->thread_id = all.next_thread_id++;
    all.buffers.push_back(buffer_);
  }
  ~ThreadBuffer() {
    Threads& all = threads();
    const MutexLock lock(all.mutex);
    if (recording()) {
      const MutexLock buffer_lock(buffer_->mutex);
      buffer_->thread_ended = true;
    } else {
      std::erase(all.buffers, buffer_);
    }
  }
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;
  Buffer& operator*() const { return *buffer_; }

 private:
  std::shared_ptr<Buffer> buffer_;
};

Buffer& this_thread() {
  thread_local const ThreadBuffer buffer;
  return *buffer;
}

// What start() and stop() share.
struct Control {
  Mutex mutex;  // a start or a stop is under way
  DeviceRecorder* device_recorder FATHOM_GUARDED_BY(mutex) = nullptr;
  bool device_records FATHOM_GUARDED_BY(mutex) = false;
  std::string device_missing FATHOM_GUARDED_BY(mutex);
};

Control& control() {
  static Control& instance = *new Control;
  return instance;
}

SpanListener listener;  // written before listening says so

}  // namespace

void begin_heard(const Event& event) { listener.begin(event.category, event.name); }

void record(int64_t recording, const Event& event) {
  Buffer& buffer = this_thread();
  Threads& all = threads();
  const MutexLock lock(buffer.mutex);
  // Another recording, or none: the span began in one that is over.
  if (listening.load(std::memory_order_relaxed) >> 1 != recording) return;
  if (buffer.recording != recording) {
    buffer.events.clear();
    buffer.num_dropped = 0;
    buffer.recording = recording;
  }
  const bool has_room = static_cast<int64_t>(buffer.events.size()) <
                            all.max_events_per_thread.load(std::memory_order_relaxed) &&
                        all.num_events_left.fetch_sub(1, std::memory_order_relaxed) > 0;
  if (has_room)
    buffer.events.push_back(event);
  else
    ++buffer.num_dropped;
}

}  // namespace detail

namespace {

// "runner of rank 1" is "runner 1": the system keeps 15 characters.
std::string system_name(std::string name) {
  static constexpr std::string_view kOfRank = " of rank ";
  constexpr size_t kLongest = 15;
  if (const size_t at = name.find(kOfRank); at != std::string::npos)
    name.replace(at, kOfRank.size(), " ");
  return name.substr(0, kLongest);
}

}  // namespace

void set_thread_name(std::string name) {
  pthread_setname_np(pthread_self(), system_name(name).c_str());
  detail::Buffer& buffer = detail::this_thread();
  const MutexLock lock(buffer.mutex);
  buffer.thread_name = std::move(name);
}

void Span::arg(const char* key, int64_t value) {
  if (listening_ == 0) return;
  for (detail::Arg& arg : event_.args) {
    if (arg.key != nullptr) continue;
    arg = {.key = key, .value = value};
    return;
  }
}

void Span::finish() {
  const auto duration = std::chrono::steady_clock::now() - event_.begin;
  event_.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  if (listening_ & 1) detail::listener.end();
  if (listening_ > 1) detail::record(listening_ >> 1, event_);
}

void instant(const char* category, const char* name) {
  const int64_t recording = detail::listening.load(std::memory_order_relaxed) >> 1;
  if (recording == 0) return;
  detail::record(recording, {.category = category,
                             .name = name,
                             .begin = std::chrono::steady_clock::now(),
                             .duration_ns = -1,
                             .args = {}});
}

void set_listener(const SpanListener& listener) {
  detail::listener = listener;
  if (listener.begin != nullptr)
    detail::listening.fetch_or(1);
  else
    detail::listening.fetch_and(~int64_t{1});
}

void set_device_recorder(DeviceRecorder* recorder) {
  const MutexLock lock(detail::control().mutex);
  detail::control().device_recorder = recorder;
}

namespace {

// Before the host's: the first time takes long.
void start_device(detail::Control& control, int64_t max_events) FATHOM_REQUIRES(control.mutex) {
  control.device_records = false;
  control.device_missing.clear();
  if (control.device_recorder == nullptr) return;
  const Status started = control.device_recorder->start(max_events);
  control.device_records = started.has_value();
  if (!started) control.device_missing = started.error().message;
}

void start_host(const TraceOptions& options) {
  detail::Threads& all = detail::threads();
  const MutexLock lock(all.mutex);
  std::erase_if(all.buffers, [](const std::shared_ptr<detail::Buffer>& buffer) {
    const MutexLock buffer_lock(buffer->mutex);
    return buffer->thread_ended;
  });
  all.max_events_per_thread = options.max_events_per_thread;
  all.num_events_left = options.max_events;
  all.started = std::chrono::steady_clock::now();
  detail::listening.fetch_add(2 * ++all.last_recording);
}

detail::Recording stop_host() {
  detail::Threads& all = detail::threads();
  const MutexLock lock(all.mutex);
  const int64_t recording = detail::listening.fetch_and(1) >> 1;
  detail::Recording result;
  result.started = all.started;
  for (const std::shared_ptr<detail::Buffer>& buffer : all.buffers) {
    const MutexLock buffer_lock(buffer->mutex);
    if (recording == 0 || buffer->recording != recording) continue;
    result.threads.push_back({.thread_id = buffer->thread_id,
                              .name = buffer->thread_name,
                              .events = std::move(buffer->events)});
    buffer->events.clear();
    result.num_dropped += buffer->num_dropped;
  }
  return result;
}

}  // namespace

Result<std::string> start(const TraceOptions& options) {
  if (options.max_events_per_thread < 1 || options.max_events < 1 || options.max_device_events < 1)
    return invalid_argument("a trace of " + std::to_string(options.max_events_per_thread) +
                            " events per thread, " + std::to_string(options.max_events) +
                            " in all and " + std::to_string(options.max_device_events) +
                            " of a device, all must be >= 1");
  detail::Control& control = detail::control();
  const MutexLock lock(control.mutex);
  if (recording()) return Error{ErrorCode::kResourceEmpty, "a trace is being recorded already"};
  start_device(control, options.max_device_events);
  start_host(options);
  return control.device_missing;
}

std::string stop() {
  detail::Control& control = detail::control();
  const MutexLock lock(control.mutex);
  const bool was_recording = recording();
  detail::Recording result = stop_host();
  if (was_recording) {
    if (control.device_records) result.device = control.device_recorder->stop();
    result.device_missing = control.device_missing;
  }
  return detail::to_json(result);
}

}  // namespace fathom::trace
