// Several lanes under one planner: where a request goes, what lanes share and what each has for itself.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "tests/sanitized.h"
#include "tests/sched/step_driver.h"

namespace fathom::sched {
namespace {

using testing::NewSequence;
using testing::StepDriver;
using testing::text;

constexpr int kLaneBlockTokens = 4;

SchedulerConfig lanes_config(int num_lanes, int num_blocks, int slots_per_lane = 4) {
  return {.num_lanes = num_lanes,
          .num_slots = num_lanes * slots_per_lane,
          .max_batch_tokens = 512,
          .kv_groups = {{.num_blocks = num_blocks, .block_tokens = kLaneBlockTokens}},
          .chunked_prefill_size = 512,
          .max_running_requests = num_lanes * slots_per_lane};
}

int lane_of(const StepDriver& driver, const Sequence& sequence) {
  return driver.scheduler().lanes().number_of(sequence);
}

std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(LanesTest, requests_without_anything_cached_go_where_the_least_runs) {
  StepDriver driver(lanes_config(4, 64));
  std::vector<Sequence*> all;
  for (int i = 0; i < 8; ++i) all.push_back(&driver.add({text(20, i), 30}));
  driver.step();
  std::map<int, int> count;
  for (const Sequence* sequence : all) ++count[lane_of(driver, *sequence)];
  EXPECT_EQ(count, (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
}

// Four long ones run, one in each lane. Then a request finds its prefix where it was computed.
TEST(LanesTest, a_request_goes_to_the_longest_cached_prefix) {
  StepDriver driver(lanes_config(4, 64));
  const std::vector<int32_t> prefix = text(24, 100);
  Sequence& first = driver.add({prefix, 1});
  driver.step();
  const int lane = 0;
  EXPECT_TRUE(first.ended);
  std::vector<Sequence*> all;
  for (int i = 0; i < 8; ++i) all.push_back(&driver.add({text(20, i), 90}));
  driver.step();
  for (int i = 0; i < 3; ++i) {
    Sequence& next = driver.add({joined(prefix, text(3, 200 + i)), 1});
    driver.step();
    EXPECT_EQ(next.num_cached_tokens, 24) << i;
  }
  EXPECT_EQ(driver.scheduler().lanes()[lane].running.size(), 2u);
}

// The mean is that of all lanes, and the lane with the prefix is beyond 1.3 times as much.
TEST(LanesTest, a_cached_prefix_never_beats_a_lane_with_much_more_than_the_mean) {
  StepDriver driver(lanes_config(2, 256, 16));
  const std::vector<int32_t> prefix = text(24, 100);
  driver.add({prefix, 1});
  driver.step();
  std::array<int, 2> count{};
  for (int i = 0; i < 16; ++i) {
    Sequence& next = driver.add({joined(prefix, text(3, 200 + i)), 60});
    driver.step();
    ++count[static_cast<size_t>(lane_of(driver, next))];
    const Lanes& lanes = driver.scheduler().lanes();
    const double mean = static_cast<double>(lanes[0].load + lanes[1].load) / 2;
    const double one = static_cast<double>(next.num_prefill_tokens + kLaneBlockTokens);
    EXPECT_LE(static_cast<double>(std::max(lanes[0].load, lanes[1].load)),
              Lanes::kMostLoad * mean + one);
  }
  EXPECT_GE(count[0], 8);
  EXPECT_GE(count[1], 5);
}

TEST(LanesTest, a_lane_without_room_leaves_a_request_to_the_others) {
  StepDriver driver(lanes_config(2, 8));
  Sequence& big = driver.add({text(24, 1), 8});
  driver.step();
  const int lane = lane_of(driver, big);
  // No block is left beside it there, though its prefix is.
  Sequence& second = driver.add({joined(text(24, 1), text(4, 2)), 4});
  driver.step();
  ASSERT_GE(second.slot, 0);
  EXPECT_NE(lane_of(driver, second), lane);
  driver.run();
}

// Two in a lane that has room for one of them to the end, and another lane that is empty by then.
TEST(LanesTest, a_retracted_request_may_go_on_in_another_lane) {
  StepDriver driver(lanes_config(2, 12));
  Sequence& a = driver.add({text(8, 1), 36});
  Sequence& b = driver.add({text(8, 2), 2});
  driver.step();
  Sequence& c = driver.add({text(8, 3), 36});
  driver.step();
  std::set<int> lanes_of_c = {lane_of(driver, c)};
  for (int i = 0; i < 200 && driver.scheduler().has_work(); ++i) {
    driver.step();
    if (c.slot >= 0) lanes_of_c.insert(lane_of(driver, c));
  }
  EXPECT_TRUE(a.ended && b.ended && c.ended);
  EXPECT_GT(c.num_retractions, 0);
  EXPECT_EQ(lanes_of_c.size(), 2u);
  EXPECT_EQ(c.num_output_tokens(), 36);
}

TEST(LanesTest, share_the_prompt_tokens_of_a_step_in_the_order_of_arrival) {
  SchedulerConfig config = lanes_config(4, 256);
  config.chunked_prefill_size = 32;
  StepDriver driver(config);
  std::vector<Sequence*> all;
  for (int i = 0; i < 6; ++i) all.push_back(&driver.add({text(100, i), 2}));
  while (driver.scheduler().has_work()) {
    const PlannedStep& step = driver.step();
    int num_tokens = 0;
    for (const PlannedSlice& slice : step.slices)
      if (slice.sequence->num_output_tokens() == 0 || slice.num_tokens > 1)
        num_tokens += slice.num_tokens;
    EXPECT_LE(num_tokens, 32 + 6);
  }
  EXPECT_EQ(driver.order_of_admission(), (std::vector<core::RequestId>{0, 1, 2, 3, 4, 5}));
}

// Eight lanes with 8 times the slots, against one with all of it.
struct Placed {
  double hit_rate = 0, imbalance = 0;  // max / mean of what lanes carried over the run
};

constexpr int kTraceLanes = 8, kTraceSlots = 32, kTraceBlocks = 3000, kTraceRequests = 6000;

// A request begins with one of 64 texts of 128 to 640 tokens, the first far more often than the last, and has up to 160
// tokens of its own. As many run at once as there are slots.
class SharedPrefixTrace {
 public:
  explicit SharedPrefixTrace(uint64_t seed) : random_(seed) {
    for (int i = 0; i < kTexts; ++i) {
      texts_.push_back(text(128 + 64 * pick(0, 8), 1000 + i));
      weights_.push_back(1.0 / std::pow(i + 1, 0.8));
    }
  }
  NewSequence next() {
    std::discrete_distribution<int> choose(weights_.begin(), weights_.end());
    const auto which = static_cast<size_t>(choose(random_));
    return {.prompt = joined(texts_[which], text(pick(16, 160), 5000 + count_++)),
            .max_new_tokens = pick(8, 48)};
  }

 private:
  static constexpr int kTexts = 64;
  int pick(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }
  std::mt19937_64 random_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<double> weights_;
  int count_ = 0;
};

Placed run_trace(int num_lanes, LanePlacement placement, int num_requests) {
  const int share = kTraceLanes / num_lanes;
  SchedulerConfig config{.num_lanes = num_lanes,
                         .num_slots = kTraceLanes * kTraceSlots,
                         .max_batch_tokens = 8192,
                         .kv_groups = {{.num_blocks = share * kTraceBlocks, .block_tokens = 16}},
                         .chunked_prefill_size = 8192,
                         .max_running_requests = kTraceLanes * kTraceSlots,
                         .placement = placement};
  StepDriver driver(config, /*checks_every=*/64);
  SharedPrefixTrace trace(11);
  std::vector<double> carried(static_cast<size_t>(num_lanes), 0);
  int num_added = 0;
  while (num_added < num_requests || driver.scheduler().has_work()) {
    // They come evenly, some more than end.
    for (int i = 0; i < 6 && num_added < num_requests && driver.scheduler().num_waiting() < 64;
         ++i, ++num_added)
      driver.add(trace.next());
    driver.step();
    for (const Lane& lane : driver.scheduler().lanes())
      carried[static_cast<size_t>(lane.number)] += static_cast<double>(lane.load);
  }
  double most = 0, sum = 0;
  for (const double each : carried) {
    most = std::max(most, each);
    sum += each;
  }
  const SchedulerStats stats = driver.scheduler().stats();
  return {.hit_rate = static_cast<double>(stats.num_cached_tokens) /
                      static_cast<double>(stats.num_prompt_tokens),
          .imbalance = most * num_lanes / sum};
}

TEST(LanesTest, find_nearly_the_prefixes_of_one_large_cache_and_stay_balanced) {
  const int num_requests = kIsSanitized ? 600 : kTraceRequests;
  const Placed one = run_trace(1, LanePlacement::kPrefix, num_requests);
  const Placed placed = run_trace(kTraceLanes, LanePlacement::kPrefix, num_requests);
  const Placed in_turn = run_trace(kTraceLanes, LanePlacement::kRoundRobin, num_requests);
  const Placed shortest = run_trace(kTraceLanes, LanePlacement::kLeastLoad, num_requests);
  std::cout << "hit rate, load max/mean: one cache " << one.hit_rate << "; 8 lanes by prefix "
            << placed.hit_rate << ", " << placed.imbalance << "; in turn " << in_turn.hit_rate
            << ", " << in_turn.imbalance << "; least load " << shortest.hit_rate << ", "
            << shortest.imbalance << "\n";
  EXPECT_LE(placed.imbalance, 1.3);
  if (kIsSanitized) return;
  EXPECT_GE(placed.hit_rate, 0.95 * one.hit_rate);
  EXPECT_GT(placed.hit_rate, shortest.hit_rate);
  EXPECT_GT(placed.hit_rate, in_turn.hit_rate);
}

}  // namespace
}  // namespace fathom::sched
