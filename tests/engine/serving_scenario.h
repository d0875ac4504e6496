#pragma once
// What the tests of ServingEngine share: a sink that keeps everything and checks the order of updates, and a
// clock that stands still until a test moves it.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "engine/serving_engine.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine::testing {

// Tests that sleep in between use it for waits that must not fail on a busy machine.
constexpr std::chrono::seconds kPatience{120};

class ManualClock : public Clock {
 public:
  time_point now() const override {
    return time_point(std::chrono::nanoseconds(nanoseconds_.load()));
  }
  void advance(std::chrono::nanoseconds by) { nanoseconds_ += by.count(); }

 private:
  std::atomic<int64_t> nanoseconds_{1'000'000'000};
};

struct Answer {
  std::vector<int32_t> tokens;
  uint32_t client_tag = 0;
  int num_ends = 0;
  core::FinishReason reason = core::FinishReason::kNone;
  std::string error;
  uint64_t seed = 0;
  RequestTimes times;
};

class CollectingSink : public UpdateSink {
 public:
  void on_updates(std::shared_ptr<const StepUpdates> updates) override {
    const std::lock_guard lock(mutex_);
    for (const RequestUpdate& update : updates->requests) {
      Answer& answer = answers_[update.id];
      EXPECT_EQ(answer.num_ends, 0) << "request " << update.id << ": an update after its end";
      answer.client_tag = update.client_tag;
      for (int32_t i = update.tokens_begin; i < update.tokens_end; ++i)
        answer.tokens.push_back(updates->tokens.at(static_cast<size_t>(i)).token);
      if (!update.end) continue;
      ++answer.num_ends;
      ++num_ends_;
      answer.reason = update.end->reason;
      answer.error = update.end->error;
      answer.seed = update.end->seed;
      answer.times = update.end->times;
      EXPECT_EQ(update.end->num_output_tokens, static_cast<int>(answer.tokens.size()));
    }
    changed_.notify_all();
  }

  bool wait_for_end(core::RequestId id) {
    return wait([&] { return answers_[id].num_ends > 0; });
  }
  bool wait_for_tokens(core::RequestId id, size_t num_tokens) {
    return wait([&] { return answers_[id].tokens.size() >= num_tokens; });
  }
  bool wait_for_ends(size_t num_ends) {
    return wait([&] { return num_ends_ >= num_ends; });
  }
  Answer answer(core::RequestId id) {
    const std::lock_guard lock(mutex_);
    return answers_[id];
  }
  size_t num_answers() {
    const std::lock_guard lock(mutex_);
    return answers_.size();
  }

 private:
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<core::RequestId, Answer> answers_;
  size_t num_ends_ = 0;
};

// Polls: the engine publishes its state once per step.
template <class Condition>
bool eventually(Condition condition) {
  const Stopwatch watch;
  while (watch.seconds() < static_cast<double>(kPatience.count())) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// The tokens are those that the request must get, as far as they go; all of them when it ran to its end.
inline void expect_right_tokens(const core::Request& request, const Answer& answer,
                                int vocab_size) {
  const core::RequestOutput expected = expected_output(request, answer.seed, {}, vocab_size);
  const std::vector<int32_t> all = ids_of(expected.tokens);
  ASSERT_LE(answer.tokens.size(), all.size());
  EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), all.begin()));
  if (answer.reason == core::FinishReason::kLength) {
    EXPECT_EQ(answer.tokens.size(), all.size());
  }
}

inline core::Request make_request(int num_prompt_tokens, int max_new_tokens,
                                  int32_t first_token = 1) {
  core::Request request;
  for (int i = 0; i < num_prompt_tokens; ++i) request.prompt.push_back((first_token + i) % 1000);
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  return request;
}

// Never ends by itself within a test.
inline core::Request endless_request() { return make_request(5, 200'000); }

inline runner::SimConfig roomy() { return {.num_blocks = 8192, .max_slots = 4}; }

inline runner::SimDrafterConfig chain_of_three(double agreement) {
  return {.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, .agreement = agreement};
}

// Lets the engine's thread in on_updates() wait for the test.
class BlockingSink : public CollectingSink {
 public:
  void on_updates(std::shared_ptr<const StepUpdates> updates) override {
    CollectingSink::on_updates(std::move(updates));
    const std::lock_guard lock(gate_);
  }
  std::mutex gate_;
};

// Holds the engine's thread in on_updates(), once each of the first requests has a number of tokens, until the test
// lets it go: it is in the midst of their answers then, however threads are scheduled.
class HoldingSink : public CollectingSink {
 public:
  HoldingSink(size_t num_requests, size_t num_tokens)
      : num_requests_(num_requests), num_tokens_(num_tokens) {}

  void on_updates(std::shared_ptr<const StepUpdates> updates) override {
    CollectingSink::on_updates(std::move(updates));
    // The engine counts its requests from 1.
    for (size_t i = 1; i <= num_requests_; ++i)
      if (answer(static_cast<core::RequestId>(i)).tokens.size() < num_tokens_) return;
    std::unique_lock lock(mutex_);
    is_held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_let_go_; });
  }
  bool wait_until_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return is_held_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_let_go_ = true;
    changed_.notify_all();
  }

 private:
  const size_t num_requests_, num_tokens_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false, is_let_go_ = false;
};

}  // namespace fathom::engine::testing
