#include "base/trace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "base/json.h"

namespace fathom::trace {
namespace detail {

std::atomic<int64_t> recording_id{0};

namespace {

// The events of one thread. The thread appends, stop() takes; both hold the mutex, which hardly ever waits.
struct Buffer {
  std::mutex mutex;
  std::string thread_name = "thread";
  int thread_id = 0;
  bool thread_ended = false;
  int64_t recording = 0;  // the events are of this one
  std::vector<Event> events;
  int64_t num_dropped = 0;
};

struct Threads {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;
  int next_thread_id = 1;
  int64_t last_recording = 0;
  std::chrono::steady_clock::time_point started{};
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
    const std::lock_guard lock(all.mutex);
    buffer_->thread_id = all.next_thread_id++;
    all.buffers.push_back(buffer_);
  }
  ~ThreadBuffer() {
    Threads& all = threads();
    const std::lock_guard lock(all.mutex);
    if (recording()) {
      const std::lock_guard buffer_lock(buffer_->mutex);
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

void append_us(std::string& out, int64_t ns) {
  const std::string fraction = std::to_string(ns % 1000);
  out += std::to_string(ns / 1000) + '.' + std::string(3 - fraction.size(), '0') + fraction;
}

void append_event(std::string& out, const Event& event, int thread_id,
                  std::chrono::steady_clock::time_point started) {
  const int64_t begin_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(event.begin - started).count();
  out += R"({"ph":")";
  out += event.duration_ns < 0 ? R"(i","s":"t)" : "X";
  out += R"(","pid":1,"tid":)" + std::to_string(thread_id) + R"(,"cat":)" +
         json::dump(event.category) + R"(,"name":)" + json::dump(event.name) + R"(,"ts":)";
  append_us(out, std::max<int64_t>(begin_ns, 0));
  if (event.duration_ns >= 0) {
    out += R"(,"dur":)";
    append_us(out, event.duration_ns);
  }
  const char* separator = R"(,"args":{)";
  for (const Arg& arg : event.args) {
    if (arg.key == nullptr) continue;
    out += separator + json::dump(arg.key) + ':' + std::to_string(arg.value);
    separator = ",";
  }
  if (event.args[0].key != nullptr) out += '}';
  out += "},\n";
}

void append_name(std::string& out, const char* kind, int thread_id, const std::string& name) {
  out += R"({"ph":"M","pid":1,"tid":)" + std::to_string(thread_id) + R"(,"name":")" + kind +
         R"(","args":{"name":)" + json::dump(name) + "}},\n";
}

}  // namespace

void record(int64_t recording, const Event& event) {
  Buffer& buffer = this_thread();
  Threads& all = threads();
  const std::lock_guard lock(buffer.mutex);
  // Another recording, or none: the span began in one that is over.
  if (recording_id.load(std::memory_order_relaxed) != recording) return;
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

void set_thread_name(std::string name) {
  detail::Buffer& buffer = detail::this_thread();
  const std::lock_guard lock(buffer.mutex);
  buffer.thread_name = std::move(name);
}

void Span::arg(const char* key, int64_t value) {
  if (recording_ == 0) return;
  for (detail::Arg& arg : event_.args) {
    if (arg.key != nullptr) continue;
    arg = {.key = key, .value = value};
    return;
  }
}

void Span::finish() {
  const auto duration = std::chrono::steady_clock::now() - event_.begin;
  event_.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  detail::record(recording_, event_);
}

void instant(const char* category, const char* name) {
  const int64_t recording = detail::recording_id.load(std::memory_order_relaxed);
  if (recording == 0) return;
  detail::record(recording, {.category = category,
                             .name = name,
                             .begin = std::chrono::steady_clock::now(),
                             .duration_ns = -1,
                             .args = {}});
}

Status start(const TraceOptions& options) {
  if (options.max_events_per_thread < 1 || options.max_events < 1)
    return invalid_argument("a trace of " + std::to_string(options.max_events_per_thread) +
                            " events per thread and " + std::to_string(options.max_events) +
                            " in all, both must be >= 1");
  detail::Threads& all = detail::threads();
  const std::lock_guard lock(all.mutex);
  if (recording()) return Error{ErrorCode::kResourceEmpty, "a trace is being recorded already"};
  std::erase_if(all.buffers, [](const std::shared_ptr<detail::Buffer>& buffer) {
    const std::lock_guard buffer_lock(buffer->mutex);
    return buffer->thread_ended;
  });
  all.max_events_per_thread = options.max_events_per_thread;
  all.num_events_left = options.max_events;
  all.started = std::chrono::steady_clock::now();
  detail::recording_id = ++all.last_recording;
  return {};
}

std::string stop() {
  detail::Threads& all = detail::threads();
  const std::lock_guard lock(all.mutex);
  const int64_t recording = detail::recording_id.exchange(0);
  std::string out = "{\"traceEvents\":[\n";
  detail::append_name(out, "process_name", 0, "fathom");
  int64_t num_dropped = 0;
  for (const std::shared_ptr<detail::Buffer>& buffer : all.buffers) {
    const std::lock_guard buffer_lock(buffer->mutex);
    if (recording == 0 || buffer->recording != recording) continue;
    detail::append_name(out, "thread_name", buffer->thread_id, buffer->thread_name);
    for (const detail::Event& event : buffer->events)
      detail::append_event(out, event, buffer->thread_id, all.started);
    num_dropped += buffer->num_dropped;
    std::vector<detail::Event>().swap(buffer->events);
  }
  out.resize(out.size() - 2);  // the last comma and line end
  out += "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":" +
         std::to_string(num_dropped) + "}}\n";
  return out;
}

}  // namespace fathom::trace
