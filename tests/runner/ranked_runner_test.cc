// Ranks behind one runner: what they share.

#include "runner/ranks/ranked_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/sim/sim_runner.h"

namespace fathom::runner {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// A simulated rank that keeps the masks it got.
class Rank : public SimRunner {
 public:
  explicit Rank(std::vector<SharedMasks>& got)
      : SimRunner({.vocab_size = 1000, .max_slots = 2}), got_(got) {}
  void share_masks(SharedMasks masks) override {
    got_.push_back(masks);
    SimRunner::share_masks(std::move(masks));
  }

 private:
  std::vector<SharedMasks>& got_;
};

core::Batch masked_batch(int num_lanes) {
  core::Batch batch{.step_id = 0};
  for (int32_t slot = 0; slot < 2 * num_lanes; slot += 2) {
    batch.admissions.push_back({.slot = slot, .prompt = {5, 6, 7}, .seed = 1});
    batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = {3}});
    batch.slices.push_back(
        {.slot = slot, .num_tokens = 3, .tokens = {5, 6, 7}, .wants_mask = true});
  }
  return batch;
}

TEST(RankedRunner, ranks_of_a_lane_have_one_copy_of_its_masks) {
  for (const int num_lanes : {1, 2}) {
    std::vector<SharedMasks> got;
    std::vector<std::unique_ptr<Runner>> ranks;
    for (int rank = 0; rank < 3 * num_lanes; ++rank) ranks.push_back(std::make_unique<Rank>(got));
    RankedRunner runner(std::move(ranks), num_lanes);
    runner.submit(masked_batch(num_lanes));
    core::StepMasks masks{.step_id = 0};
    for (int lane = 0; lane < num_lanes; ++lane)
      masks.masks.push_back({.slice_idx = lane, .words = std::vector<uint64_t>(16, ~0ull)});
    runner.set_masks(std::move(masks));
    ASSERT_THAT(got, SizeIs(3 * num_lanes));
    for (auto first = got.begin(); first != got.end(); first += 3)
      EXPECT_THAT(std::vector<SharedMasks>(first, first + 3), Each(*first));
    EXPECT_EQ(got.front() == got.back(), num_lanes == 1);
    got.clear();
    EXPECT_THAT(runner.wait().slices, SizeIs(num_lanes));
  }
}

}  // namespace
}  // namespace fathom::runner
