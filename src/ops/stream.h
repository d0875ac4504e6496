#pragma once
// Stream: an ordered queue of work on one device, handed to every operator. A CPU stream runs each
// operator to its end before it returns; a CUDA stream enqueues it.
//
// The stream owns the scratch memory of its operators. An operator says how much it needs beside its entry in
// the backend table (Operator::scratch_bytes), the call through the table provides it, and the operator
// takes it with scratch(): there is no other way to it. So the same calls can be measured first:
//
//   stream->begin_measuring();
//   model.forward(largest_step, ...);    // every operator says what it needs; none runs
//   stream->seal_scratch();              // allocated and touched once: needing more is an error from here on
//
// A stream that is not sealed lets its scratch grow, which is what loading and tests want.
// One thread submits to a stream at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace fathom::ops {

struct Backend;
class Stream;

// An operator as it was called: its name in the backend table and the type it was chosen by, of its weights or
// cache rows, or of activations where it has neither.
struct OperatorCall {
  std::string_view op;
  tensor::DType dtype = tensor::DType::kF32;
  bool operator==(const OperatorCall&) const = default;
};

// Work that was captured once and is enqueued again as a whole, on the same addresses.
class Graph {
 public:
  virtual ~Graph() = default;
  // REQUIRES: the stream that captured it.
  virtual void replay(Stream& stream) = 0;
};

// A point in a stream's work; recording it again moves it. One thread at a time, which may be another one than
// enqueues once record() has returned. The stream outlives it.
class Event {
 public:
  virtual ~Event() = default;
  // Puts it behind everything enqueued so far. It allocates nothing and waits for nothing. Not while capturing.
  virtual void record() = 0;
  // Returns when everything enqueued before record() has been done.
  virtual void wait() = 0;
  // Seconds from the moment the work came to `earlier` until it came here, by the clock of who does it: what was
  // enqueued long before the device reached it counts from there. On a stream that does not run ahead these are the
  // moments of record(). REQUIRES: both are of one stream, `earlier` was recorded before, and wait() has returned.
  virtual double seconds_since(const Event& earlier) const = 0;
};

class Stream {
 public:
  explicit Stream(const Backend& backend) : backend_(&backend) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Backend& backend() const { return *backend_; }
  // Waits until everything enqueued has been done.
  virtual void synchronize() = 0;
  // Whether operators return before they are done.
  virtual bool runs_ahead() const { return false; }
  // What `enqueue` enqueues, to be replayed; it is not done by capturing. `enqueue` calls operators of this stream
  // only, and copies: it does not wait, and all that it names stays where it is while the graph is used. A stream
  // without graphs calls `enqueue` again at every replay. REQUIRES: the scratch is sealed.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& enqueue);
  // Of this stream, not recorded yet.
  virtual std::unique_ptr<Event> make_event();
  // A new event, recorded here.
  std::unique_ptr<Event> record();
  // Gives memory of the backend the pages that an operating system hands out at first use, so that no step
  // waits for them. Leaves the contents undefined.
  virtual void touch(void* data, int64_t bytes);

  // Of the operator that is being enqueued: the bytes it said it needs, aligned to 256, undefined, valid until
  // it has been done. Null for 0 bytes. REQUIRES: it said so (checked).
  void* scratch() const;
  // The most that one operator needed so far, measured or run.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // From here on operators are not run, so tensors may lie nowhere. REQUIRES: not sealed.
  void begin_measuring();
  bool is_measuring() const { return phase_ == Phase::kMeasuring; }
  // Ends measuring. Throws StartupError when there is no room.
  void seal_scratch();

  // From here on every call is appended to `calls`, measured or run; null ends it. `calls` must stay until then.
  void record_operators(std::vector<OperatorCall>* calls) { recorded_ = calls; }

  static constexpr int64_t kNoScratch = -1;
  // For the call through the table (ops/boundary.h). Whether it, which needs this much, is to run now.
  bool begin_operator(const OperatorCall& call, int64_t bytes);

 protected:
  // At least `bytes` bytes aligned to 256, or null when there is no room. What it returned before is not
  // used any more; its contents need not be kept. The stream owns both.
  virtual void* allocate_scratch(int64_t bytes) = 0;

 private:
  enum class Phase { kGrowing, kMeasuring, kSealed };

  void grow_scratch(std::string_view op, int64_t bytes);

  const Backend* backend_;
  Phase phase_ = Phase::kGrowing;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  // Of the operator that is being enqueued.
  std::string_view op_{};
  int64_t op_bytes_ = kNoScratch;
  std::vector<OperatorCall>* recorded_ = nullptr;
};

}  // namespace fathom::ops
