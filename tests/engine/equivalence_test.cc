// The same greedy tokens from the demo model in float32, on these prompts, whatever the engine does (bits may differ
// with the form of attention; deterministic_test.cc compares those): prefix cache on or off, hits at every
// edge of a block, overlap, chunks, forced retractions, batch sizes, copies of a prompt, cancelled neighbours.
// The yardstick is each request alone, without cache and overlap, its prompt in one chunk.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/failpoint.h"
#include "engine/step_loop.h"
#include "tests/engine/sim_scenario.h"
#include "tests/runner/demo_model.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using fathom::testing::fast_demo_model;
using fathom::testing::greedy;
using fathom::testing::kNumThreads;
using fathom::testing::load_golden;
using runner::ModelRunner;
using testing::ids_of;
using testing::Recorder;

using Tokens = std::vector<int32_t>;

constexpr int kBlockTokens = 64;
constexpr int kNewTokens = 6;

// Of a sanitizer's build every path stays, with fewer values on it.
template <class T>
std::vector<T> all_or_few(std::vector<T> all, std::vector<T> few) {
  return kIsSanitized ? few : all;
}

// Everything the golden file has, one after the other.
const Tokens& text() {
  static const Tokens tokens = [] {
    Tokens joined;
    for (const auto& golden : load_golden()) {
      joined.insert(joined.end(), golden.prompt_ids.begin(), golden.prompt_ids.end());
      joined.insert(joined.end(), golden.greedy_ids.begin(), golden.greedy_ids.end());
    }
    return joined;
  }();
  return tokens;
}

Tokens piece(size_t begin, size_t length) {
  Tokens tokens;
  for (size_t i = begin; i < begin + length; ++i) tokens.push_back(text()[i % text().size()]);
  return tokens;
}

// Tokens that start as others do and then go their own way.
Tokens sharing(size_t shared, size_t length, size_t own) {
  Tokens tokens = piece(0, shared);
  const Tokens rest = piece(300 + 11 * own, length - shared);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

core::Request request_of(core::RequestId id, Tokens prompt) {
  core::SamplingParams params = greedy(kNewTokens);
  params.ignore_eos = true;
  return {.id = id, .prompt = std::move(prompt), .sampling = params};
}

struct EngineWay {
  StepLoopConfig config{};
  int retract_every = 0;     // steps; 0 = only when the cache is full
  uint64_t cancel_seed = 0;  // 0 = nobody is cancelled
  std::string name() const {
    return "radix " + std::to_string(config.radix_cache) + ", overlap " +
           std::to_string(config.overlap) + ", chunks of " +
           std::to_string(config.chunked_prefill_size) + ", retraction every " +
           std::to_string(retract_every) + " steps, cancel seed " + std::to_string(cancel_seed);
  }
};

class Equivalence : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    runner_ = ModelRunner::create(fast_demo_model(), {.max_slots = 64,
                                                      .max_batch_tokens = 2048,
                                                      .context_length = 512,
                                                      .max_total_tokens = 200 * kBlockTokens,
                                                      .num_threads = kNumThreads})
                  .release();
  }
  static void TearDownTestSuite() {
    delete runner_;
    runner_ = nullptr;
  }
  void TearDown() override { disarm_failpoints(); }

  // What the request gets alone; computed once per prompt.
  static const Tokens& alone(const core::Request& request) {
    Tokens& tokens = alone_[request.prompt];
    if (!tokens.empty()) return tokens;
    StepLoop loop(*runner_, {.radix_cache = false, .overlap = false});
    Recorder recorder(loop);
    EXPECT_TRUE(loop.add(request));
    recorder.run();
    tokens = recorder.streamed.at(request.id);
    EXPECT_EQ(tokens.size(), static_cast<size_t>(kNewTokens));
    return tokens;
  }

  static void add_all(StepLoop& loop, const std::vector<core::Request>& requests) {
    for (const core::Request& request : requests) {
      const Status added = loop.add(request);
      ASSERT_TRUE(added) << added.error().message;
    }
  }

  // Steps until idle; cancels one request in four at random times if asked to.
  static void run(StepLoop& loop, Recorder& recorder, const EngineWay& how,
                  const std::vector<core::Request>& requests) {
    std::mt19937_64 random(how.cancel_seed);
    for (int step = 0;; ++step) {
      if (how.retract_every > 0 && step % how.retract_every == how.retract_every - 1)
        arm_failpoint("scheduler.retract", 1);
      if (how.cancel_seed != 0 && random() % 2 == 0)
        loop.cancel(requests[random() % requests.size() / 4 * 4].id);
      const bool busy = recorder.step();
      ASSERT_EQ(loop.check_integrity(), "");
      if (!busy) break;
    }
    disarm_failpoints();
  }

  static void expect_alone(const Recorder& recorder, const std::vector<core::Request>& requests) {
    for (const core::Request& request : requests) {
      const core::RequestOutput& output = recorder.finished.at(request.id);
      Tokens expected = alone(request);
      if (output.finish_reason == core::FinishReason::kCancelled) {
        ASSERT_LE(output.tokens.size(), expected.size());
        expected.resize(output.tokens.size());
      }
      EXPECT_EQ(ids_of(output.tokens), expected)
          << "request " << request.id << " of " << request.prompt.size() << " tokens, "
          << output.num_cached_tokens << " of them cached";
    }
  }

  // All requests at once in a fresh loop; returns what it did.
  static StepLoopStats expect_same(const std::vector<core::Request>& requests,
                                   const EngineWay& how) {
    SCOPED_TRACE(how.name());
    for (const core::Request& request : requests) alone(request);  // the runner serves one loop
    StepLoop loop(*runner_, how.config);
    Recorder recorder(loop);
    add_all(loop, requests);
    run(loop, recorder, how, requests);
    expect_alone(recorder, requests);
    testing::expect_everything_returned(loop, runner_->info());
    return loop.stats();
  }

  // Prompts around the edges of a block; some begin alike.
  static std::vector<core::Request> mixed_requests() {
    std::vector<core::Request> requests;
    for (const size_t length :
         all_or_few<size_t>({1, 63, 64, 65, 127, 128, 129, 201}, {1, 64, 65, 70}))
      requests.push_back(
          request_of(std::ssize(requests), sharing(std::min<size_t>(length, 64), length, length)));
    return requests;
  }

  static ModelRunner* runner_;
  static std::map<Tokens, Tokens> alone_;
};

ModelRunner* Equivalence::runner_ = nullptr;
std::map<Tokens, Tokens> Equivalence::alone_;

TEST_F(Equivalence, hits_misses_and_partial_hits_at_block_edges) {
  const std::vector<size_t> lengths = all_or_few<size_t>({63, 64, 65, 127, 128, 129}, {64, 65});
  for (const bool overlap : {false, true}) {
    for (const size_t shared : lengths) {
      // The first to come, one that leaves it after `shared` tokens, the shared part itself, both again.
      std::vector<core::Request> requests = {
          request_of(0, sharing(shared, shared + 10, 1)),
          request_of(1, sharing(shared, shared + 7, 2)), request_of(2, piece(0, shared)),
          request_of(3, sharing(shared, shared + 10, 1)), request_of(4, piece(0, shared))};
      for (const core::Request& request : requests) alone(request);
      const EngineWay how{.config = {.overlap = overlap}};
      StepLoop loop(*runner_, how.config);
      Recorder recorder(loop);
      for (const core::Request& request : requests) {
        add_all(loop, {request});
        run(loop, recorder, how, {request});
        // Whole blocks of what is shared, all but one token at most.
        const size_t usable =
            std::min(shared, request.prompt.size() - 1) / kBlockTokens * kBlockTokens;
        const bool first = request.id == 0;
        const size_t usable_again = (request.prompt.size() - 1) / kBlockTokens * kBlockTokens;
        EXPECT_EQ(recorder.finished.at(request.id).num_cached_tokens,
                  static_cast<int>(first             ? 0
                                   : request.id == 3 ? usable_again
                                                     : usable))
            << "request " << request.id << ", " << shared << " tokens shared";
      }
      expect_alone(recorder, requests);
    }
  }
}

TEST_F(Equivalence, chunks_of_any_size_with_and_without_cache_and_overlap) {
  const std::vector<core::Request> all = mixed_requests();
  for (const int chunk : all_or_few<int>({1, 7, 64, 200, 2048}, {7, 2048})) {
    // One token a step takes a step for each: without the longest prompts.
    const std::vector<core::Request> requests(all.begin(), chunk == 1 ? all.end() - 3 : all.end());
    for (const bool radix : {false, true})
      for (const bool overlap : {false, true})
        expect_same(
            requests,
            {.config = {.chunked_prefill_size = chunk, .radix_cache = radix, .overlap = overlap}});
  }
}

TEST_F(Equivalence, batches_of_any_size) {
  std::vector<core::Request> requests;
  for (core::RequestId id = 0; id < 64; ++id) {
    const auto index = static_cast<size_t>(id);
    // Every fourth shares a block with others.
    requests.push_back(request_of(id, index % 4 == 3 ? sharing(64, 65 + index % 5, index)
                                                     : piece(17 * index, 1 + index % 23)));
  }
  for (const int size : all_or_few<int>({1, 2, 3, 7, 8, 9, 31, 32, 33, 63, 64}, {1, 3, 9})) {
    const std::vector<core::Request> batch(requests.begin(), requests.begin() + size);
    expect_same(batch, {});
    if (size > 9) continue;
    expect_same(batch, {.config = {.radix_cache = false, .overlap = false}});
  }
}

TEST_F(Equivalence, retraction_forced_every_three_steps) {
  const std::vector<core::Request> requests = mixed_requests();
  for (const bool radix : {false, true})
    for (const bool overlap : {false, true}) {
      const StepLoopStats stats = expect_same(
          requests,
          {.config = {.chunked_prefill_size = 64, .radix_cache = radix, .overlap = overlap},
           .retract_every = 3});
      EXPECT_GT(stats.num_retractions, 2);
    }
}

TEST_F(Equivalence, many_copies_of_one_prompt) {
  for (const size_t length : all_or_few<size_t>({20, 64, 129}, {65}))
    for (const bool overlap : {false, true}) {
      std::vector<core::Request> requests;
      for (core::RequestId id = 0; id < 8; ++id)
        requests.push_back(request_of(id, piece(0, length)));
      // Few at a time, so that the later ones find what the first ones computed.
      const StepLoopStats stats =
          expect_same(requests, {.config = {.max_running_requests = 3, .overlap = overlap}});
      EXPECT_EQ(stats.num_cached_tokens > 0, length > kBlockTokens);
      expect_same(requests, {.config = {.overlap = overlap}, .retract_every = 3});
    }
}

TEST_F(Equivalence, salted_copies_compute_their_own_blocks) {
  std::vector<core::Request> requests;
  for (core::RequestId id = 0; id < 4; ++id) {
    requests.push_back(request_of(id, piece(0, 129)));
    requests.back().cache_salt = id % 2 == 0 ? "red" : "blue";
  }
  const StepLoopStats stats = expect_same(requests, {.config = {.max_running_requests = 1}});
  EXPECT_EQ(stats.num_cached_tokens, 2 * 128);
}

TEST_F(Equivalence, storms_of_cancellations) {
  std::vector<core::Request> requests = mixed_requests();
  for (core::RequestId id = 100; id < (kIsSanitized ? 104 : 112); ++id)
    requests.push_back(
        request_of(id, piece(13 * static_cast<size_t>(id), static_cast<size_t>(5 + id % 40))));
  for (uint64_t seed = 1; seed <= (kIsSanitized ? 2 : 6); ++seed)
    expect_same(requests, {.config = {.chunked_prefill_size = 64,
                                      .radix_cache = seed % 3 != 0,
                                      .overlap = seed % 2 == 0},
                           .retract_every = seed % 2 == 0 ? 3 : 0,
                           .cancel_seed = seed});
}

TEST_F(Equivalence, everything_at_once_at_random) {
  const std::vector<core::Request> requests = mixed_requests();
  for (uint64_t seed = 1; seed <= (kIsSanitized ? 2 : 8); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto pick = [&](int min, int max) {
      return min + static_cast<int>(random() % static_cast<uint64_t>(max - min + 1));
    };
    std::vector<core::Request> batch;
    const int num_requests = pick(2, kIsSanitized ? 5 : 16);
    for (core::RequestId id = 0; id < num_requests; ++id) {
      batch.push_back(requests[random() % requests.size()]);
      batch.back().id = id;
      batch.back().priority = pick(0, 2);
      batch.back().cache_salt = pick(0, 3) == 0 ? "salt" : "";
    }
    expect_same(batch,
                {.config = {.chunked_prefill_size = pick(kIsSanitized ? 16 : 4, 300),
                            .max_running_requests = pick(1, 20),
                            .schedule_policy = pick(0, 1) == 0 ? sched::SchedulePolicy::kLpm
                                                               : sched::SchedulePolicy::kFcfs,
                            .radix_cache = pick(0, 3) > 0,
                            .overlap = pick(0, 2) > 0},
                 .retract_every = pick(0, 1) * 3,
                 .cancel_seed = pick(0, 1) == 0 ? 0 : random()});
  }
}

}  // namespace
}  // namespace fathom::engine
