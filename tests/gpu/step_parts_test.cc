// Where the time of a step goes on the GPU: the device's own times lie inside what the host sees of a lone step, and
// steps that are in flight together do not count the same time twice. Every other test here holds each step to having
// them (decoding.h).

#include <chrono>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "tests/gpu/decoding.h"
#include "tests/gpu/gpu.h"

namespace fathom::gpu_test {
namespace {

// Two clocks, and events that round to half a microsecond.
constexpr double kClocksSeconds = 20e-6;

double sum_of_parts(const core::StepResult& step) {
  return step.forward_seconds + step.mask_wait_seconds + step.sampling_seconds;
}

class GpuStepParts : public GpuTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    runner_ = make_runner(GetParam() ? std::vector<int>{1} : std::vector<int>{});
  }
  Batch next_batch() const { return {.step_id = runner_->next_step_id()}; }
  // A long one and some decodes, of one slot.
  Batch next_of(int step) const {
    Batch batch = next_batch();
    if (step == 0) {
      admit(batch, 0, std::vector<int32_t>(kPromptTokens, 7), testing::greedy(kNewTokens));
    } else {
      batch.slices.push_back({.slot = 0});
    }
    return batch;
  }

  static constexpr int kPromptTokens = 400;
  std::unique_ptr<ModelRunner> runner_;
};
INSTANTIATE_TEST_SUITE_P(decodes, GpuStepParts, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "captured" : "launch_by_launch");
});

TEST_P(GpuStepParts, of_a_lone_step_lie_inside_its_time) {
  for (int step = 0; step < kNewTokens; ++step) {
    const Batch batch = next_of(step);
    const Stopwatch watch;
    runner_->submit(batch);
    const core::StepResult result = runner_->wait();
    const double seconds = watch.seconds();
    EXPECT_GT(result.forward_seconds, 0) << "step " << step;
    EXPECT_GT(result.sampling_seconds, 0) << "step " << step;
    EXPECT_EQ(result.mask_wait_seconds, 0) << "step " << step;
    EXPECT_LE(sum_of_parts(result), result.wall_seconds) << "step " << step;
    EXPECT_LE(result.wall_seconds, seconds + kClocksSeconds) << "step " << step;
  }
  Batch release = next_batch();
  release.releases = {0};
  runner_->submit(release);
  const core::StepResult nothing = runner_->wait();
  EXPECT_EQ(nothing.forward_seconds, 0);
  EXPECT_EQ(nothing.sampling_seconds, 0);
}

TEST_P(GpuStepParts, of_steps_in_flight_together_are_not_longer_than_all_took) {
  const Stopwatch watch;
  double sum = 0;
  const auto take = [&] {
    const core::StepResult result = runner_->wait();
    EXPECT_GT(result.forward_seconds, 0);
    EXPECT_GT(result.sampling_seconds, 0);
    EXPECT_LE(sum_of_parts(result), result.wall_seconds);
    sum += sum_of_parts(result);
  };
  for (int step = 0; step < kNewTokens; ++step) {
    runner_->submit(next_of(step));
    if (step > 0) take();
  }
  take();
  EXPECT_LE(sum, watch.seconds() + kClocksSeconds);
}

TEST_P(GpuStepParts, of_some_steps_only_are_measured_where_that_is_asked_for) {
  runner_.reset();
  runner_ = make_runner(GetParam() ? std::vector<int>{1} : std::vector<int>{}, 4);
  for (int step = 0; step < 10; ++step) {
    const Batch batch = next_of(step);
    runner_->submit(batch);
    const core::StepResult result = runner_->wait();
    EXPECT_EQ(result.forward_seconds > 0, batch.step_id % 4 == 0) << "step " << batch.step_id;
    EXPECT_EQ(result.sampling_seconds > 0, batch.step_id % 4 == 0) << "step " << batch.step_id;
    EXPECT_EQ(result.mask_wait_seconds, 0);
    EXPECT_GT(result.wall_seconds, 0);
  }
}

TEST_P(GpuStepParts, tell_the_wait_for_masks_from_the_computing) {
  runner_->submit(next_of(0));
  runner_->wait();
  Batch decode = next_batch();
  decode.slices.push_back({.slot = 0, .wants_mask = true});
  const Stopwatch watch;
  runner_->submit(decode);
  // Much longer than the forward pass.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto words = static_cast<size_t>((runner_->info().vocab_size + 63) / 64);
  runner_->set_masks(
      {.step_id = decode.step_id,
       .masks = {{.slice_idx = 0, .words = std::vector<uint64_t>(words, ~uint64_t{0})}}});
  const core::StepResult result = runner_->wait();
  EXPECT_LE(sum_of_parts(result), watch.seconds() + kClocksSeconds);
  EXPECT_GT(result.mask_wait_seconds, result.wall_seconds / 2);
  EXPECT_GT(result.forward_seconds, 0);
  EXPECT_GT(result.sampling_seconds, 0);
}

}  // namespace
}  // namespace fathom::gpu_test
