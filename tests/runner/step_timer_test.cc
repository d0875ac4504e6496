// The parts of a step from the moments at which a stream came to its events, on a clock that the tests move.

#include "runner/step_timer.h"

#include <gtest/gtest.h>

#include "cpu/reference/reference_backend.h"
#include "cpu/stream.h"

namespace fathom::runner {
namespace {

// The moments are those of record(), as on a CPU.
class ClockedStream : public cpu::CpuStream {
 public:
  ClockedStream() : CpuStream(cpu::reference_backend()) {}
  std::unique_ptr<ops::Event> make_event() override {
    ++num_events;
    return std::make_unique<Moment>(*this);
  }

  double now = 0;
  int num_events = 0, num_waits = 0;

 private:
  class Moment : public ops::Event {
   public:
    explicit Moment(ClockedStream& stream) : stream_(stream) {}
    void record() override { time_ = stream_.now; }
    void wait() override { ++stream_.num_waits; }
    double seconds_since(const Event& earlier) const override {
      return time_ - dynamic_cast<const Moment&>(earlier).time_;
    }

   private:
    ClockedStream& stream_;
    double time_ = 0;
  };
};

// Powers of two, so that differences are exact.
constexpr double kForward = 4, kLate = 2, kSampling = 0.5;

void mark_step(StepTimer& timer, ClockedStream& stream, bool wants_masks) {
  timer.reset();
  timer.begin(true);
  stream.now += kForward;
  timer.forward_done();
  if (wants_masks) {
    stream.now += kLate;
    timer.masks_came();
  }
  stream.now += kSampling;
  timer.end();
}

core::StepResult told(StepTimer& timer, double wall_seconds = 10) {
  timer.wait();
  core::StepResult result{.wall_seconds = wall_seconds};
  timer.tell(result);
  return result;
}

TEST(StepTimer, tells_the_parts_of_a_step_with_and_without_a_wait_for_masks) {
  ClockedStream stream;
  StepTimer timer(stream);
  for (const bool wants_masks : {false, true, false}) {
    mark_step(timer, stream, wants_masks);
    stream.now += 8;  // until somebody reads it
    const core::StepResult result = told(timer);
    EXPECT_EQ(result.forward_seconds, kForward);
    EXPECT_EQ(result.mask_wait_seconds, wants_masks ? kLate : 0);
    EXPECT_EQ(result.sampling_seconds, kSampling);
    EXPECT_EQ(result.wall_seconds, 10);
  }
}

TEST(StepTimer, a_step_that_computes_nothing_has_parts_of_no_time_and_waits_for_nothing) {
  ClockedStream stream;
  StepTimer timer(stream);
  mark_step(timer, stream, true);
  told(timer);
  stream.num_waits = 0;
  timer.reset();
  const core::StepResult result = told(timer, 0.25);
  EXPECT_EQ(result.forward_seconds, 0);
  EXPECT_EQ(result.mask_wait_seconds, 0);
  EXPECT_EQ(result.sampling_seconds, 0);
  EXPECT_EQ(result.wall_seconds, 0.25);
  EXPECT_EQ(stream.num_waits, 0);
}

TEST(StepTimer, a_step_whose_parts_nobody_asks_for_is_waited_for_and_has_none) {
  ClockedStream stream;
  StepTimer timer(stream);
  mark_step(timer, stream, true);
  told(timer);
  timer.reset();
  timer.begin(false);
  timer.forward_done();
  timer.end();
  stream.num_waits = 0;
  const core::StepResult result = told(timer, 0.25);
  EXPECT_EQ(stream.num_waits, 1);
  EXPECT_LT(result.forward_seconds, 0);
  EXPECT_LT(result.sampling_seconds, 0);
  EXPECT_EQ(result.mask_wait_seconds, 0);
  EXPECT_EQ(result.wall_seconds, 0.25);
}

TEST(StepTimer, a_step_is_never_shorter_than_its_parts) {
  ClockedStream stream;
  StepTimer timer(stream);
  mark_step(timer, stream, true);
  EXPECT_EQ(told(timer, 0.25).wall_seconds, kForward + kLate + kSampling);
}

TEST(StepTimer, steps_in_flight_together_have_their_own_times_and_no_step_makes_events) {
  ClockedStream stream;
  StepTimer even(stream), odd(stream);
  const int num_events = stream.num_events;
  mark_step(even, stream, false);
  for (int step = 1; step < 10; ++step) {
    StepTimer &next = step % 2 == 0 ? even : odd, &last = step % 2 == 0 ? odd : even;
    mark_step(next, stream, step % 3 == 0);
    const core::StepResult result = told(last);
    EXPECT_EQ(result.forward_seconds, kForward);
    EXPECT_EQ(result.mask_wait_seconds, (step - 1) % 3 == 0 && step > 1 ? kLate : 0);
    EXPECT_EQ(result.sampling_seconds, kSampling);
  }
  EXPECT_EQ(stream.num_events, num_events);
}

}  // namespace
}  // namespace fathom::runner
