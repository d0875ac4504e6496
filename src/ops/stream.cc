#include "ops/stream.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "ops/backend.h"
#include "ops/device_buffer.h"

namespace fathom::ops {
namespace {

// Of a stream that runs an operator to its end before it returns.
class RunAgain : public Graph {
 public:
  explicit RunAgain(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void replay(Stream&) override { enqueue_(); }

 private:
  std::function<void()> enqueue_;
};

class Passed : public Event {
 public:
  void record() override { time_ = system_clock().now(); }
  void wait() override {}
  double seconds_since(const Event& earlier) const override {
    return seconds_between(static_cast<const Passed&>(earlier).time_, time_);
  }

 private:
  Clock::time_point time_{};
};

}  // namespace

std::unique_ptr<Graph> Stream::capture(const std::function<void()>& enqueue) {
  return std::make_unique<RunAgain>(enqueue);
}

std::unique_ptr<Event> Stream::make_event() { return std::make_unique<Passed>(); }

std::unique_ptr<Event> Stream::record() {
  std::unique_ptr<Event> event = make_event();
  event->record();
  return event;
}

void Stream::touch(void*, int64_t) {}

void* Stream::scratch() const {
  FATHOM_CHECK(op_bytes_ != kNoScratch, op_ << " takes scratch without saying how much it needs");
  return scratch_;
}

void Stream::begin_measuring() {
  FATHOM_CHECK(phase_ == Phase::kGrowing, "the scratch has been measured before");
  phase_ = Phase::kMeasuring;
}

void Stream::seal_scratch() {
  FATHOM_CHECK(phase_ == Phase::kMeasuring, "the scratch is not being measured");
  phase_ = Phase::kSealed;
  if (scratch_bytes_ == 0) return;
  scratch_ = allocate_scratch(scratch_bytes_);
  if (scratch_ == nullptr)
    throw_no_room_for_step(backend(), scratch_bytes_, "the scratch of a step");
  touch(scratch_, scratch_bytes_);
}

bool Stream::begin_operator(const OperatorCall& call, int64_t bytes) {
  op_ = call.op;
  op_bytes_ = bytes;
  if (recorded_ != nullptr) recorded_->push_back(call);
  if (bytes > scratch_bytes_) grow_scratch(call.op, bytes);
  return phase_ != Phase::kMeasuring;
}

void Stream::grow_scratch(std::string_view op, int64_t bytes) {
  FATHOM_CHECK(phase_ != Phase::kSealed,
               op << " needs " << bytes << " bytes of scratch, planned are " << scratch_bytes_);
  scratch_bytes_ = bytes;
  if (phase_ == Phase::kMeasuring) return;
  scratch_ = allocate_scratch(bytes);
  FATHOM_CHECK(scratch_ != nullptr, "no memory for the " << bytes << " bytes of scratch of " << op);
}

}  // namespace fathom::ops
