// A rank's thread and the two phases in which a runner comes to be on it, of one rank and of several.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <set>
#include <thread>

#include "base/startup_error.h"
#include "comm/thread_ranks.h"
#include "runner/model_runner.h"
#include "tests/comm/place.h"
#include "tests/runner/demo_model.h"

namespace fathom::runner {
namespace {

using comm::RankContext;
using core::Batch;
using fathom::testing::greedy;
using fathom::testing::load_demo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr model::ModelOptions kFloat32 = {.dequantize = true, .weight_dtype = tensor::DType::kF32};

std::thread::id thread_of(RankThread& thread) {
  std::thread::id id;
  thread.run([&] { id = std::this_thread::get_id(); }).get();
  return id;
}

TEST(RankThread, runs_tasks_in_order_on_one_thread_and_all_before_it_ends) {
  std::vector<int> order;
  std::set<std::thread::id> threads;
  {
    RankThread thread({}, cpu::fast_backend());
    threads.insert(thread_of(thread));
    for (int i = 0; i < 100; ++i)
      thread.run([&, i] {
        order.push_back(i);
        threads.insert(std::this_thread::get_id());
      });
  }
  EXPECT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(RankThread, hands_an_error_to_whoever_waits_and_goes_on) {
  RankThread thread({}, cpu::fast_backend());
  std::future<void> failed = thread.run([] { throw StartupError("no room"); });
  EXPECT_THROW(failed.get(), StartupError);
  EXPECT_NE(thread_of(thread), std::thread::id());
}

TEST(RankThread, uses_the_device_of_its_rank) {
  static std::vector<int> devices;
  ops::Backend backend = cpu::fast_backend();
  backend.use_device = [](int device) { devices.push_back(device); };
  { const RankThread thread({.device = 3}, backend); }
  EXPECT_THAT(devices, ElementsAre(3));
}

TEST(RankThreadDeathTest, aborts_on_a_device_that_the_backend_does_not_have) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RankThread({.device = 1}, cpu::fast_backend()), "cpu has one device, not number 1");
}

// Alone in its groups, and notes which threads meet others there.
class Witness : public comm::Place {
 public:
  Witness() : Place(0, 1) {}
  void all_reduce(const tensor::Tensor& t, ops::Stream& stream) override {
    if (!stream.is_measuring()) reducing.insert(std::this_thread::get_id());
    Place::all_reduce(t, stream);
  }
  void barrier() override {
    meeting.insert(std::this_thread::get_id());
    Place::barrier();
  }
  std::set<std::thread::id> reducing, meeting;
};

RunnerConfig rank_config() {
  return {.max_slots = 2,
          .max_batch_tokens = 64,
          .context_length = 128,
          .max_total_tokens = 256,
          .num_threads = 1,
          .graph_batch_sizes = {1, 2}};
}

Batch first_batch(const std::vector<int32_t>& prompt) {
  Batch batch{.step_id = 0};
  batch.admissions.push_back({.slot = 0, .prompt = prompt, .sampling = greedy(64)});
  batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {0}});
  batch.slices.push_back(
      {.slot = 0, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
  return batch;
}

Batch decode_batch(int64_t step_id) {
  Batch batch{.step_id = step_id};
  batch.slices.push_back({.slot = 0});
  return batch;
}

TEST(ModelRunnerPhases, meet_other_ranks_in_the_second_on_the_thread_of_the_steps) {
  Witness tp;
  const auto model = load_demo(cpu::fast_backend(), kFloat32, {.tp = &tp});
  auto thread = std::make_unique<RankThread>(model->rank(), model->backend());
  const std::thread::id rank_thread = thread_of(*thread);
  const auto runner = ModelRunner::allocate(*model, rank_config(), std::move(thread));
  EXPECT_GT(runner->info().kv_groups[0].num_blocks, 0);
  EXPECT_EQ(tp.num_barriers, 0);
  EXPECT_TRUE(tp.reducing.empty());
  runner->start().get();
  EXPECT_THAT(tp.meeting, ElementsAre(rank_thread));
  runner->submit(first_batch({0, 5, 9}));
  runner->submit(decode_batch(1));
  runner->wait();
  runner->wait();
  EXPECT_THAT(tp.reducing, ElementsAre(rank_thread));
}

TEST(ModelRunnerPhases, end_with_the_error_of_the_first_before_the_second) {
  Witness tp;
  const auto model = load_demo(cpu::fast_backend(), kFloat32, {.tp = &tp});
  RunnerConfig too_small = rank_config();
  too_small.max_total_tokens = 64;  // a block of two that the context needs
  for (const bool whole : {false, true}) {
    std::string error;
    try {
      if (whole) ModelRunner::create(*model, too_small);
      ModelRunner::allocate(*model, too_small, nullptr);
    } catch (const StartupError& caught) {
      error = caught.what();
    }
    EXPECT_THAT(error, HasSubstr("one sequence of 128 tokens"));
    EXPECT_EQ(tp.num_barriers, 0);
  }
  // The model is as it was.
  const auto runner = ModelRunner::create(*model, rank_config());
  runner->submit(first_batch({0, 5}));
  EXPECT_EQ(runner->wait().slices.size(), 1u);
}

// Two ranks that meet in a barrier, each of which has the whole model.
TEST(ModelRunnerPhases, wait_for_every_rank_without_holding_the_caller) {
  class Meeting : public comm::Place {
   public:
    explicit Meeting(std::barrier<>& all_here) : Place(0, 1), all_here_(all_here) {}
    void barrier() override { all_here_.arrive_and_wait(); }

   private:
    std::barrier<>& all_here_;
  };
  std::barrier<> all_here(2);
  Meeting tp(all_here);
  const auto model = load_demo(cpu::fast_backend(), kFloat32, {.tp = &tp});
  const auto a = ModelRunner::allocate(*model, rank_config(), nullptr);
  const auto b = ModelRunner::allocate(*model, rank_config(), nullptr);
  std::future<void> a_started = a->start();
  EXPECT_EQ(a_started.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  std::future<void> b_started = b->start();
  a_started.get();
  b_started.get();
}

TEST(ModelRunnerPhases, of_two_ranks_that_share_a_model_give_the_tokens_of_one) {
  constexpr size_t kRanks = 2;
  const auto golden = fathom::testing::load_golden();
  comm::ThreadRanks tp("tp", kRanks);
  std::vector<std::unique_ptr<model::Model>> models(kRanks);
  std::vector<std::unique_ptr<ModelRunner>> runners(kRanks);
  for (size_t i = 0; i < kRanks; ++i) {
    const RankContext rank{.tp = &tp.of(static_cast<int>(i))};
    auto thread = std::make_unique<RankThread>(rank, cpu::fast_backend());
    thread->run([&] { models[i] = load_demo(cpu::fast_backend(), kFloat32, rank); }).get();
    runners[i] = ModelRunner::allocate(*models[i], rank_config(), std::move(thread));
  }
  std::vector<std::future<void>> started;
  for (const auto& runner : runners) started.push_back(runner->start());
  for (std::future<void>& future : started) future.get();
  Batch batch = first_batch(golden[0].prompt_ids);
  const size_t num_tokens = std::min<size_t>(golden[0].greedy_ids.size(), 8);
  for (size_t step = 0; step < num_tokens; ++step) {
    for (const auto& runner : runners) runner->submit(batch);
    for (const auto& runner : runners)
      EXPECT_EQ(runner->wait().slices.at(0).tokens.at(0).token, golden[0].greedy_ids[step]) << step;
    batch = decode_batch(static_cast<int64_t>(step) + 1);
  }
}

TEST(ModelRunnerPhasesDeathTest, abort_on_a_step_before_the_second) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto runner =
            ModelRunner::allocate(fathom::testing::fast_demo_model(), rank_config(), nullptr);
        runner->submit(first_batch({0}));
      },
      "the runner was not started");
}

}  // namespace
}  // namespace fathom::runner
