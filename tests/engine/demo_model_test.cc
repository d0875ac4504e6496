// The engine over the demo model: whatever runs beside a request, however its prompt is cut and however
// small the cache is, it gets the tokens that it gets alone.

#include <gtest/gtest.h>

#include <numeric>

#include "base/failpoint.h"
#include "engine/step_loop.h"
#include "tests/engine/sim_scenario.h"
#include "tests/runner/demo_model.h"

namespace fathom::engine {
namespace {

using fathom::testing::fast_demo_model;
using fathom::testing::greedy;
using fathom::testing::kDemoEos;
using fathom::testing::kNumThreads;
using fathom::testing::kThreadSanitizer;
using fathom::testing::load_golden;
using runner::ModelRunner;
using testing::ids_of;
using testing::Recorder;

using Tokens = std::vector<int32_t>;

class DemoEngine : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    runner_ = ModelRunner::create(fast_demo_model(), {.max_slots = 18,
                                                      .max_batch_tokens = 256,
                                                      .context_length = 512,
                                                      .max_total_tokens = 8192,
                                                      .num_threads = kNumThreads})
                  .release();
  }
  static void TearDownTestSuite() {
    delete runner_;
    runner_ = nullptr;
  }
  void TearDown() override { disarm_failpoints(); }

  static StepLoopConfig config(int chunked_prefill_size = 256, bool overlap = true) {
    return {.chunked_prefill_size = chunked_prefill_size,
            .overlap = overlap,
            .eos_token_ids = {kDemoEos}};
  }

  // Runs the requests together; their outputs in the order of `requests`.
  static std::vector<core::RequestOutput> run(const std::vector<core::Request>& requests,
                                              const StepLoopConfig& config,
                                              runner::Runner* runner = runner_) {
    StepLoop loop(*runner, config);
    Recorder recorder(loop);
    for (const core::Request& request : requests) {
      const Status added = loop.add(request);
      EXPECT_TRUE(added) << added.error().message;
    }
    while (recorder.step()) EXPECT_EQ(loop.check_integrity(), "");
    testing::expect_everything_returned(loop, runner->info());
    last_stats_ = loop.stats();
    std::vector<core::RequestOutput> outputs;
    for (const core::Request& request : requests)
      outputs.push_back(std::move(recorder.finished.at(request.id)));
    return outputs;
  }

  // Prompts that a test of every prompt takes.
  static bool is_taken(const fathom::testing::GoldenPrompt& prompt) {
    return !kThreadSanitizer || prompt.prompt_ids.size() < 15;
  }

  static std::vector<core::Request> strangers(int count, core::RequestId first_id) {
    std::vector<core::Request> requests;
    const auto golden = load_golden();
    for (int i = 0; i < count; ++i) {
      const Tokens& text = golden[4].prompt_ids;
      const int begin = 5 * i, length = 1 + 3 * i;
      core::SamplingParams params = greedy(10 + i);
      params.temperature = i % 2 == 0 ? 1.0f : 0.0f;
      params.frequency_penalty = i % 3 == 0 ? 0.5f : 0.0f;
      params.ignore_eos = true;
      requests.push_back({.id = first_id + i,
                          .prompt = {text.begin() + begin, text.begin() + begin + length},
                          .sampling = params});
    }
    return requests;
  }

  static ModelRunner* runner_;
  static StepLoopStats last_stats_;
};

ModelRunner* DemoEngine::runner_ = nullptr;
StepLoopStats DemoEngine::last_stats_;

TEST_F(DemoEngine, answers_every_golden_prompt_alone) {
  const auto golden = load_golden();
  for (size_t i = 0; i < golden.size(); ++i) {
    const auto outputs =
        run({{.id = 1, .prompt = golden[i].prompt_ids, .sampling = greedy(64)}}, config());
    EXPECT_EQ(ids_of(outputs[0].tokens), golden[i].greedy_ids) << "prompt " << i;
    if (golden[i].greedy_ids.back() == kDemoEos) {
      EXPECT_EQ(outputs[0].finish_reason, core::FinishReason::kStop);
      EXPECT_EQ(outputs[0].matched_stop_token, kDemoEos);
    }
  }
}

TEST_F(DemoEngine, answers_the_golden_prompts_together_and_among_strangers) {
  const auto golden = load_golden();
  for (const bool overlap : {false, true}) {
    std::vector<core::Request> requests;
    for (size_t i = 0; i < golden.size(); ++i) {
      if (!is_taken(golden[i])) continue;
      requests.push_back({.id = static_cast<core::RequestId>(i),
                          .prompt = golden[i].prompt_ids,
                          .sampling = greedy(64)});
    }
    for (core::Request& stranger : strangers(kThreadSanitizer ? 3 : 12, 100))
      requests.push_back(std::move(stranger));
    for (const core::RequestOutput& output : run(requests, config(256, overlap))) {
      if (output.id >= 100) continue;
      EXPECT_EQ(ids_of(output.tokens), golden[static_cast<size_t>(output.id)].greedy_ids)
          << "prompt " << output.id;
    }
  }
}

TEST_F(DemoEngine, answers_the_same_for_every_chunk_size_at_block_boundaries) {
  const auto golden = load_golden();
  const Tokens& text = golden[2].prompt_ids;
  std::vector<core::Request> requests;
  std::vector<Tokens> alone;
  for (const int length : {63, 64, 65}) {
    core::SamplingParams params = greedy(8);
    params.ignore_eos = true;
    requests.push_back(
        {.id = length, .prompt = {text.begin(), text.begin() + length}, .sampling = params});
    alone.push_back(ids_of(run({requests.back()}, config())[0].tokens));
  }
  requests.push_back({.id = 1, .prompt = golden[1].prompt_ids, .sampling = greedy(64)});
  alone.push_back(golden[1].greedy_ids);
  const std::vector<int> chunks =
      kThreadSanitizer ? std::vector<int>{64} : std::vector<int>{1, 7, 63, 64, 65, 128, 1000};
  for (const int chunk : chunks)
    for (const bool overlap : {false, true}) {
      const auto outputs = run(requests, config(chunk, overlap));
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(ids_of(outputs[i].tokens), alone[i])
            << requests[i].prompt.size() << " tokens in chunks of " << chunk;
    }
}

TEST_F(DemoEngine, answers_the_same_from_a_cache_that_forces_retraction) {
  const auto golden = load_golden();
  const auto small = ModelRunner::create(fast_demo_model(), {.max_slots = 6,
                                                             .max_batch_tokens = 64,
                                                             .context_length = 128,
                                                             .max_total_tokens = 5 * 64,
                                                             .num_threads = kNumThreads});
  std::vector<core::Request> requests;
  std::vector<Tokens> alone;
  for (int i = 0; i < 5; ++i) {
    core::SamplingParams params = greedy(50);
    params.ignore_eos = true;
    params.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    params.repetition_penalty = i == 2 ? 1.2f : 1.0f;
    params.seed = 7;
    const Tokens& text = golden[2].prompt_ids;
    requests.push_back(
        {.id = i, .prompt = {text.begin() + i, text.begin() + 30 + 2 * i}, .sampling = params});
    alone.push_back(ids_of(run({requests.back()}, config())[0].tokens));
  }
  for (const bool overlap : {false, true}) {
    const auto outputs = run(requests, config(64, overlap), small.get());
    EXPECT_GT(last_stats_.num_retractions, 0) << "the cache was too large to test anything";
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(ids_of(outputs[i].tokens), alone[i]) << "request " << i;
  }
}

TEST_F(DemoEngine, draws_the_same_tokens_from_a_seed_alone_and_among_sixteen_strangers) {
  const auto golden = load_golden();
  core::SamplingParams params = greedy(24);
  params.temperature = 1.2f;
  params.top_p = 0.98f;
  params.min_p = 0.001f;
  params.ignore_eos = true;
  params.seed = 1234;
  // The beginning of a text alone leaves much to chance.
  core::Request request{.id = 1, .prompt = golden[7].prompt_ids, .sampling = params};
  const Tokens alone = ids_of(run({request}, config())[0].tokens);
  std::vector<core::Request> requests = strangers(16, 100);
  requests.insert(requests.begin() + 9, request);
  EXPECT_EQ(ids_of(run(requests, config())[9].tokens), alone);
  EXPECT_EQ(ids_of(run(requests, config(7, false))[9].tokens), alone);
  request.sampling.seed = 1235;
  EXPECT_NE(ids_of(run({request}, config())[0].tokens), alone);
}

TEST_F(DemoEngine, returns_golden_prompt_logprobs_and_the_logprobs_of_what_it_chose) {
  const auto golden = load_golden();
  std::vector<core::Request> requests;
  for (const size_t i : {1U, 3U, 4U, 5U, 6U}) {
    core::SamplingParams params = greedy(4);
    params.return_prompt_logprobs = true;
    params.return_logprobs = true;
    params.num_top_logprobs = 5;
    requests.push_back({.id = static_cast<core::RequestId>(i),
                        .prompt = golden[i].prompt_ids,
                        .sampling = params});
  }
  for (const core::RequestOutput& output : run(requests, config(50))) {
    const auto& expected = golden[static_cast<size_t>(output.id)].prompt_logprobs;
    ASSERT_EQ(output.prompt_logprobs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(output.prompt_logprobs[i].logprob, expected[i], 1e-3)
          << "prompt " << output.id << ", token " << i + 1;
    for (const core::SampledToken& token : output.tokens) {
      ASSERT_EQ(token.top_logprobs.size(), 5u);
      EXPECT_EQ(token.top_logprobs[0].first, token.token);
      EXPECT_EQ(token.top_logprobs[0].second, token.logprob);
    }
  }
}

TEST_F(DemoEngine, keeps_generating_past_stop_tokens_when_told_to) {
  const auto golden = load_golden();
  const Tokens& usual = golden[0].greedy_ids;  // ends with eos
  ASSERT_EQ(usual.back(), kDemoEos);
  const int until_eos = static_cast<int>(usual.size());
  core::SamplingParams ignoring = greedy(until_eos + 3);
  ignoring.ignore_eos = true;
  core::SamplingParams longer = greedy(until_eos + 3);
  longer.min_new_tokens = until_eos + 1;
  core::SamplingParams stop = greedy(until_eos);
  stop.stop_token_ids = {usual[2]};
  const auto outputs = run({{.id = 1, .prompt = golden[0].prompt_ids, .sampling = ignoring},
                            {.id = 2, .prompt = golden[0].prompt_ids, .sampling = longer},
                            {.id = 3, .prompt = golden[0].prompt_ids, .sampling = stop}},
                           config());
  EXPECT_EQ(static_cast<int>(outputs[0].tokens.size()), until_eos + 3);
  EXPECT_EQ(outputs[0].tokens[static_cast<size_t>(until_eos) - 1].token, kDemoEos);
  EXPECT_GT(static_cast<int>(outputs[1].tokens.size()), until_eos);
  EXPECT_NE(outputs[1].tokens[static_cast<size_t>(until_eos) - 1].token, kDemoEos);
  EXPECT_EQ(ids_of(outputs[2].tokens), Tokens(usual.begin(), usual.begin() + 3));
  EXPECT_EQ(outputs[2].matched_stop_token, usual[2]);
}

TEST_F(DemoEngine, fails_only_the_request_whose_logits_are_not_finite) {
  const auto golden = load_golden();
  for (const bool overlap : {false, true}) {
    arm_failpoint("model_runner.logits", 4);
    const auto outputs = run({{.id = 0, .prompt = golden[0].prompt_ids, .sampling = greedy(64)},
                              {.id = 1, .prompt = golden[1].prompt_ids, .sampling = greedy(64)},
                              {.id = 3, .prompt = golden[3].prompt_ids, .sampling = greedy(64)}},
                             config(256, overlap));
    EXPECT_EQ(outputs[0].finish_reason, core::FinishReason::kFailed);
    EXPECT_NE(outputs[0].error.find("not finite"), std::string::npos) << outputs[0].error;
    EXPECT_EQ(ids_of(outputs[0].tokens),
              Tokens(golden[0].greedy_ids.begin(), golden[0].greedy_ids.begin() + 3));
    EXPECT_EQ(ids_of(outputs[1].tokens), golden[1].greedy_ids);
    EXPECT_EQ(ids_of(outputs[2].tokens), golden[3].greedy_ids);
  }
}

}  // namespace
}  // namespace fathom::engine
