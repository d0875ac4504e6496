// Constrained requests: every step's masks come, with and without overlap, from the loop's own thread or from
// workers, whatever happens to the requests meanwhile.

#include "engine/late_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "base/failpoint.h"
#include "runner/ranks/ranked_runner.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"

namespace fathom::engine {
namespace {

using testing::expected_output;
using testing::ids_of;
using testing::Recorder;
using testing::ToyConstraint;

constexpr int kVocabSize = 200;
constexpr int32_t kEos = 7;

// Workers that take one job at a time.
class Workers {
 public:
  explicit Workers(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  MaskExecutor executor() {
    return [this](std::function<void()> job) {
      {
        const std::lock_guard lock(mutex_);
        jobs_.push_back(std::move(job));
      }
      changed_.notify_one();
    };
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

core::Request constrained(core::RequestId id, int max_new_tokens, int divisor = 3) {
  core::Request request{.id = id, .prompt = {1, 2, 3, static_cast<int32_t>(10 + id)}};
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = max_new_tokens;
  request.constraint = std::make_shared<ToyConstraint>(ToyConstraint::Rule{
      .vocab_size = kVocabSize, .divisor = divisor, .min_tokens = 3, .eos_token_ids = {kEos}});
  return request;
}

core::Request copy_of(const core::Request& request) {
  core::Request copy = request;
  if (copy.constraint != nullptr) copy.constraint = copy.constraint->clone();
  return copy;
}

void expect_as_alone(const std::vector<core::Request>& requests, const StepLoopConfig& config,
                     const runner::SimConfig& sim, bool force_retractions) {
  runner::SimRunner runner(sim);
  StepLoop loop(runner, config);
  Recorder recorder(loop);
  for (const core::Request& request : requests) ASSERT_TRUE(loop.add(copy_of(request)));
  bool busy = true;
  for (int i = 0; busy; ++i) {
    if (force_retractions && i % 3 == 2) arm_failpoint("scheduler.retract", 1);
    busy = recorder.step();
    ASSERT_EQ(loop.check_integrity(), "");
  }
  disarm_failpoints();
  for (const core::Request& request : requests) {
    const core::RequestOutput& got = recorder.finished.at(request.id);
    const core::RequestOutput want =
        expected_output(request, got.seed, config.eos_token_ids, kVocabSize);
    EXPECT_EQ(ids_of(got.tokens), ids_of(want.tokens)) << "request " << request.id;
    EXPECT_EQ(got.finish_reason, want.finish_reason) << "request " << request.id << got.error;
  }
  EXPECT_EQ(loop.stats().num_retractions > 0, force_retractions);
}

TEST(LateMasks, constrained_and_free_requests_get_the_tokens_they_get_alone) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(constrained(i, 40, 2 + i % 4));
    if (i % 3 == 0) requests.back().constraint = nullptr;
    requests.back().sampling.ignore_eos = i % 2 == 0;
  }
  Workers workers(2);
  for (const bool overlap : {false, true})
    for (const bool threads : {false, true})
      for (const bool retract : {false, true})
        expect_as_alone(requests,
                        {.chunked_prefill_size = 5,
                         .overlap = overlap,
                         .eos_token_ids = {kEos},
                         .mask_executor = threads ? workers.executor() : MaskExecutor()},
                        {.vocab_size = kVocabSize, .num_blocks = 200, .block_tokens = 4}, retract);
}

TEST(LateMasks, the_end_of_the_text_ends_a_constrained_request_even_if_eos_is_to_be_ignored) {
  // Eos may come after the first token; of eight tokens it comes soon.
  core::Request request = constrained(1, 40);
  request.sampling.ignore_eos = true;
  runner::SimRunner runner({.vocab_size = 8});
  request.prompt = {1, 2, 3};
  request.constraint = std::make_shared<ToyConstraint>(
      ToyConstraint::Rule{.vocab_size = 8, .divisor = 4, .min_tokens = 1, .eos_token_ids = {kEos}});
  StepLoop loop(runner, {.eos_token_ids = {kEos}});
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add(std::move(request)));
  recorder.run();
  const core::RequestOutput& output = recorder.finished.at(1);
  ASSERT_EQ(output.finish_reason, core::FinishReason::kStop);
  EXPECT_EQ(output.matched_stop_token, kEos);
}

// Refuses everything it is asked to accept.
class Refusing : public core::TokenConstraint {
 public:
  void fill_mask(std::span<uint64_t> words) override {
    for (uint64_t& word : words) word = ~uint64_t{0};
  }
  bool accept(int32_t) override { return false; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<Refusing>();
  }
};

TEST(LateMasks, a_constraint_that_refuses_what_it_allowed_fails_its_request_alone) {
  runner::SimRunner runner({.vocab_size = kVocabSize});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  core::Request bad = constrained(1, 10);
  bad.constraint = std::make_shared<Refusing>();
  ASSERT_TRUE(loop.add(std::move(bad)));
  const core::Request good = constrained(2, 10);
  ASSERT_TRUE(loop.add(copy_of(good)));
  recorder.run();
  EXPECT_EQ(recorder.finished.at(1).finish_reason, core::FinishReason::kFailed);
  EXPECT_EQ(recorder.finished.at(1).error, core::kGrammarRefusal);
  EXPECT_EQ(loop.stats().grammar_failures.num_refusals, 1);
  EXPECT_EQ(loop.stats().grammar_failures.num_dead_ends, 0);
  EXPECT_EQ(ids_of(recorder.finished.at(2).tokens),
            ids_of(expected_output(good, 0, {}, kVocabSize).tokens));
}

// Allows three tokens, then nothing.
class DeadEnd : public core::TokenConstraint {
 public:
  void fill_mask(std::span<uint64_t> words) override {
    for (uint64_t& word : words) word = num_tokens_ < 3 ? ~uint64_t{0} : 0;
  }
  bool accept(int32_t) override { return ++num_tokens_ <= 3; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<DeadEnd>(*this);
  }

 private:
  int num_tokens_ = 0;
};

TEST(LateMasks, a_constraint_that_allows_no_token_fails_its_request_alone) {
  for (const bool overlap : {false, true}) {
    runner::SimRunner runner({.vocab_size = kVocabSize});
    StepLoop loop(runner, {.overlap = overlap});
    Recorder recorder(loop);
    core::Request bad = constrained(1, 10);
    bad.constraint = std::make_shared<DeadEnd>();
    ASSERT_TRUE(loop.add(std::move(bad)));
    const core::Request good = constrained(2, 10);
    ASSERT_TRUE(loop.add(copy_of(good)));
    recorder.run();
    EXPECT_EQ(recorder.finished.at(1).finish_reason, core::FinishReason::kFailed);
    EXPECT_EQ(recorder.finished.at(1).error, core::kGrammarDeadEnd);
    EXPECT_EQ(loop.stats().grammar_failures.num_dead_ends, 1);
    EXPECT_EQ(loop.stats().grammar_failures.num_refusals, 0);
    EXPECT_EQ(recorder.finished.at(1).tokens.size(), 3u);
    EXPECT_EQ(ids_of(recorder.finished.at(2).tokens),
              ids_of(expected_output(good, 0, {}, kVocabSize).tokens));
  }
}

// Allows one token, the end of the text.
class OnlyTheEnd : public core::TokenConstraint {
 public:
  void fill_mask(std::span<uint64_t> words) override {
    for (uint64_t& word : words) word = 0;
    allow_token(words, kEos);
  }
  bool accept(int32_t token) override { return token == kEos; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<OnlyTheEnd>();
  }
};

TEST(LateMasks, a_request_that_can_choose_nothing_costs_others_no_cached_prefix) {
  struct Case {
    const char* what;
    std::shared_ptr<core::TokenConstraint> constraint;
    std::string_view error;
  };
  for (const Case& c : {Case{"dead end", std::make_shared<DeadEnd>(), core::kGrammarDeadEnd},
                        Case{"refusal", std::make_shared<Refusing>(), core::kGrammarRefusal},
                        Case{"bans", std::make_shared<OnlyTheEnd>(), core::kNoTokenToChoose}})
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(c.what);
      runner::SimRunner runner({.vocab_size = kVocabSize, .block_tokens = 4});
      StepLoop loop(runner, {.overlap = overlap, .eos_token_ids = {kEos}});
      Recorder recorder(loop);
      const auto run = [&](core::Request request) {
        const core::RequestId id = request.id;
        ASSERT_TRUE(loop.add(std::move(request)));
        recorder.run();
        ASSERT_EQ(loop.check_integrity(), "");
        ASSERT_EQ(recorder.finished.count(id), 1u);
      };
      core::Request request = constrained(1, 2);
      request.constraint = nullptr;
      for (int32_t token = 0; token < 20; ++token) request.prompt.push_back(20 + token);
      run(request);
      core::Request bad = constrained(2, 10);
      bad.constraint = c.constraint->clone();
      bad.sampling.min_new_tokens = 5;
      run(std::move(bad));
      EXPECT_EQ(recorder.finished.at(2).finish_reason, core::FinishReason::kFailed);
      EXPECT_THAT(recorder.finished.at(2).error, ::testing::HasSubstr(std::string(c.error)));
      request.id = 3;
      run(request);
      EXPECT_EQ(recorder.finished.at(3).num_cached_tokens, 20);
    }
}

TEST(LateMasks, masks_come_for_cancelled_requests_and_when_the_loop_is_destroyed) {
  Workers workers(1);
  for (const bool threads : {false, true}) {
    runner::SimRunner runner({.vocab_size = kVocabSize});
    {
      StepLoop loop(runner, {.mask_executor = threads ? workers.executor() : MaskExecutor()});
      StepUpdates updates;
      for (int i = 0; i < 6; ++i) ASSERT_TRUE(loop.add(constrained(i, 50)));
      for (int i = 0; i < 3; ++i) loop.step(updates);
      for (int i = 0; i < 3; ++i) loop.cancel(i);
      loop.step(updates);
      EXPECT_EQ(loop.num_running(), 3);
    }
    EXPECT_EQ(runner.in_flight(), 0);
  }
}

// Is at its mask for a while, in which the test sees whether it is taken away.
class Held : public core::TokenConstraint {
 public:
  struct Watch {
    std::promise<void> has_begun;
    std::atomic<bool> is_in_use = false, was_taken_away = false;
  };
  explicit Held(std::shared_ptr<Watch> watch) : watch_(std::move(watch)) {}
  ~Held() override {
    if (watch_->is_in_use) watch_->was_taken_away = true;
  }
  void fill_mask(std::span<uint64_t> words) override {
    const std::shared_ptr<Watch> watch = watch_;
    watch->is_in_use = true;
    watch->has_begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (uint64_t& word : words) word = ~uint64_t{0};
    watch->is_in_use = false;
  }
  bool accept(int32_t) override { return true; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<Held>(watch_);
  }

 private:
  const std::shared_ptr<Watch> watch_;
};

TEST(LateMasks, a_request_stays_while_its_mask_is_made_though_the_runner_has_failed) {
  bool has_failed = false;
  std::vector<runner::RankedMember> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(
        {.runner = std::make_unique<runner::SimRunner>(runner::SimConfig{.vocab_size = kVocabSize}),
         .rank = rank});
  runner::RankedRunner runner(std::move(ranks), 1,
                              [&] { return std::string(has_failed ? "rank 1 is lost" : ""); });
  const auto watch = std::make_shared<Held::Watch>();
  Workers workers(1);
  StepLoop loop(runner, {.mask_executor = workers.executor()});
  Recorder recorder(loop);
  core::Request free = constrained(1, 10);
  free.constraint = nullptr;
  ASSERT_TRUE(loop.add(std::move(free)));
  recorder.step();
  core::Request held = constrained(2, 10);
  held.constraint = std::make_shared<Held>(watch);
  ASSERT_TRUE(loop.add(std::move(held)));
  has_failed = true;
  recorder.step();  // the first step is found worthless, and the masks of the second begin
  watch->has_begun.get_future().wait();
  recorder.run();
  EXPECT_EQ(recorder.finished.at(2).finish_reason, core::FinishReason::kFailed);
  EXPECT_FALSE(watch->was_taken_away);
}

}  // namespace
}  // namespace fathom::engine
