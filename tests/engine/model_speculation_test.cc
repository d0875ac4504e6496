// Speculation with a model: whatever the drafter proposes and however steps are cut, a request gets the tokens that it
// gets from plain decoding. The models, the demo checkpoint and a tiny one with sparse attention, both with their MTP
// layers, have one attention form, so log-probabilities are the same bits; on a GPU but for trees, where a row and
// those above it do not lie side by side while they are verified, which moves sums by their rounding.

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "base/failpoint.h"
#include "engine/step_loop.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"
#include "tests/model/v32_checkpoint.h"
#include "tests/runner/demo_model.h"

namespace fathom::engine {
namespace {

using fathom::testing::kDemoEos;
using fathom::testing::kNumThreads;
using fathom::testing::kThreadSanitizer;
using runner::DrafterInfo;
using runner::ModelRunner;
using testing::Recorder;

using Tokens = std::vector<int32_t>;

constexpr int kNumKinds = 8;
constexpr int kNumRequests = kThreadSanitizer ? 4 : 2 * kNumKinds;

// With sparse attention to 64 rows, fewer than most requests have, and few tokens that ever come out, so that drafts
// are accepted though its weights mean nothing.
const model::Model& absorbed_sparse_model() {
  const bool on_gpu = std::getenv("FATHOM_TEST_DEVICE") != nullptr;
  static const model::V32Checkpoint checkpoint({.is_fp8 = on_gpu, .num_likely_tokens = 3});
  static const std::unique_ptr<model::Model> model = fathom::testing::load_model(
      checkpoint.directory(), on_gpu ? cuda::batch_invariant_backend() : cpu::fast_backend(),
      {.kv_cache_dtype = on_gpu ? tensor::DType::kF8E4M3 : tensor::DType::kF32,
       .attention_form = model::AttentionForm::kAbsorbed});
  return *model;
}

const model::Model& absorbed_demo_model() {
  if (std::getenv("FATHOM_TEST_DEVICE") != nullptr) return fathom::testing::fast_demo_model();
  static const std::unique_ptr<model::Model> model = fathom::testing::load_demo(
      cpu::fast_backend(), {.dequantize = true,
                            .weight_dtype = tensor::DType::kF32,
                            .attention_form = model::AttentionForm::kAbsorbed});
  return *model;
}

DrafterInfo chain(int num_steps) {
  return {.num_steps = num_steps, .top_k = 1, .num_draft_tokens = num_steps + 1};
}

const model::Model& absorbed_model(bool is_sparse) {
  return is_sparse ? absorbed_sparse_model() : absorbed_demo_model();
}

std::unique_ptr<ModelRunner> make_runner(bool is_sparse, const DrafterInfo& drafter,
                                         std::vector<int> graph_batch_sizes = {}) {
  return ModelRunner::create(absorbed_model(is_sparse),
                             {.max_slots = 8,
                              .max_batch_tokens = 256,
                              .context_length = 512,
                              .max_total_tokens = 64 * 64,
                              .num_threads = kNumThreads,
                              .graph_batch_sizes = std::move(graph_batch_sizes),
                              .drafter = drafter});
}

// Every second one is a problem that the model answers as its drafter expects; the others are strings of tokens.
Tokens prompt_of(int number, std::mt19937_64& random) {
  static const std::vector<fathom::testing::GoldenPrompt> golden = fathom::testing::load_golden();
  if (number % 2 == 0) return golden[static_cast<size_t>(number / 2) % golden.size()].prompt_ids;
  const Tokens& text = golden[2].prompt_ids;
  const size_t shared = std::vector<size_t>{0, 20, 64, 70, 128}[random() % 5];
  Tokens prompt;
  for (size_t i = 0; i < shared; ++i) prompt.push_back(text[i % text.size()]);
  for (size_t i = 0; i < 1 + random() % 40; ++i)
    prompt.push_back(static_cast<int32_t>(3 + random() % 2000));
  return prompt;
}

void choose_kind(int kind, int vocab_size, core::Request& request) {
  core::SamplingParams& params = request.sampling;
  params.temperature = kind < 2 ? 0.0f : 0.7f;
  switch (kind) {
    case 1:
      params.num_top_logprobs = 5;
      params.return_prompt_logprobs = true;
      break;
    case 3:
      params.repetition_penalty = 1.2f;
      params.frequency_penalty = 0.5f;
      params.presence_penalty = 0.3f;
      break;
    case 4:
      request.constraint = std::make_shared<testing::ToyConstraint>(testing::ToyConstraint::Rule{
          .vocab_size = vocab_size, .divisor = 3, .min_tokens = 9, .eos_token_ids = {kDemoEos}});
      break;
    case 5:
      params.min_new_tokens = 7;
      for (int32_t id = 0; id < vocab_size; id += 3) params.stop_token_ids.push_back(id);
      break;
    case 6:
      params.logit_bias = {{17, 4.0f}, {vocab_size / 7, 3.5f}, {5, -100.0f}};
      params.top_p = 0.9f;
      break;
    case 7:
      params.temperature = 0;
      params.repetition_penalty = 1.3f;
      params.min_new_tokens = 5;
      break;
    default:
      break;
  }
}

core::Request numbered_request(int number, int vocab_size) {
  std::mt19937_64 random(static_cast<uint64_t>(number) + 1);
  core::Request request{.id = number, .prompt = prompt_of(number, random)};
  for (int32_t& id : request.prompt) id %= vocab_size;
  request.sampling.max_new_tokens = 1 + static_cast<int>(random() % 40);
  request.sampling.return_logprobs = true;
  request.sampling.seed = random();
  choose_kind(number / 2 % kNumKinds, vocab_size, request);
  return request;
}

struct LoopAnswers {
  std::map<int, core::RequestOutput> outputs{};
  core::SpeculationCounts speculation{};
  StepLoopStats stats{};
};

LoopAnswers run(ModelRunner& runner, StepLoopConfig config, bool retract = false) {
  config.eos_token_ids = {kDemoEos};
  config.speculation.enabled = runner.info().drafter.num_steps > 0;
  StepLoop loop(runner, config);
  Recorder recorder(loop);
  for (int number = 0; number < kNumRequests; ++number) {
    const Status added = loop.add(numbered_request(number, runner.info().vocab_size));
    EXPECT_TRUE(added) << added.error().message;
  }
  for (int step = 1; recorder.step(); ++step) {
    EXPECT_EQ(loop.check_integrity(), "");
    if (retract && step % 3 == 0) arm_failpoint("scheduler.retract", 1);
  }
  disarm_failpoints();
  testing::expect_everything_returned(loop, runner.info());
  EXPECT_EQ(static_cast<int>(recorder.finished.size()), kNumRequests);
  LoopAnswers answers{.stats = loop.stats()};
  for (auto& [id, output] : recorder.finished) {
    answers.speculation.num_verify_steps += output.speculation.num_verify_steps;
    answers.speculation.num_drafts_accepted += output.speculation.num_drafts_accepted;
    answers.outputs[static_cast<int>(id)] = std::move(output);
  }
  return answers;
}

void expect_same(const std::vector<core::SampledToken>& actual,
                 const std::vector<core::SampledToken>& expected) {
  ASSERT_EQ(testing::ids_of(actual), testing::ids_of(expected));
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE("token " + std::to_string(i));
    EXPECT_EQ(actual[i].logprob, expected[i].logprob);
    ASSERT_EQ(actual[i].top_logprobs.size(), expected[i].top_logprobs.size());
    for (size_t j = 0; j < actual[i].top_logprobs.size(); ++j) {
      EXPECT_EQ(actual[i].top_logprobs[j].first, expected[i].top_logprobs[j].first);
      EXPECT_EQ(actual[i].top_logprobs[j].second, expected[i].top_logprobs[j].second);
    }
  }
}

void expect_same(const LoopAnswers& actual, const LoopAnswers& expected) {
  for (const auto& [number, output] : actual.outputs) {
    SCOPED_TRACE("request " + std::to_string(number));
    const core::RequestOutput& plain = expected.outputs.at(number);
    expect_same(output.tokens, plain.tokens);
    expect_same(output.prompt_logprobs, plain.prompt_logprobs);
    EXPECT_EQ(output.finish_reason, plain.finish_reason);
    EXPECT_EQ(output.error, plain.error);
  }
}

// Where activations are bf16 a tree's other order of sums now and then changes a token, and with it all that follow.
void expect_mostly_same(const LoopAnswers& actual, const LoopAnswers& expected) {
  int num_same = 0;
  for (const auto& [number, output] : actual.outputs)
    num_same +=
        testing::ids_of(output.tokens) == testing::ids_of(expected.outputs.at(number).tokens) ? 1
                                                                                              : 0;
  EXPECT_GE(2 * num_same, static_cast<int>(actual.outputs.size()));
}

struct DrafterCase {
  const char* name;
  DrafterInfo shape;
  double least_accepted;  // tokens of a verifying step
  bool is_sparse = false;
};

class ModelSpeculation : public ::testing::TestWithParam<DrafterCase> {
 protected:
  static std::unique_ptr<ModelRunner> runner(std::vector<int> graph_batch_sizes = {}) {
    return make_runner(GetParam().is_sparse, GetParam().shape, std::move(graph_batch_sizes));
  }
  static const LoopAnswers& plain() {
    static std::map<bool, LoopAnswers> answers;
    const bool is_sparse = GetParam().is_sparse;
    if (!answers.contains(is_sparse))
      answers[is_sparse] =
          run(*make_runner(is_sparse, {}), {.radix_cache = false, .overlap = false});
    return answers.at(is_sparse);
  }
  static bool is_chain() { return GetParam().shape.top_k == 1; }
  static void expect_plain(const LoopAnswers& answers) {
    const bool rounds = absorbed_model(GetParam().is_sparse).backend().act == tensor::DType::kBf16;
    if (!is_chain() && rounds) return expect_mostly_same(answers, plain());
    expect_same(answers, plain());
  }
};

INSTANTIATE_TEST_SUITE_P(
    drafters, ModelSpeculation,
    ::testing::Values(
        DrafterCase{"chain_1", chain(1), 1.5}, DrafterCase{"chain_2", chain(2), 1.8},
        DrafterCase{"chain_3", chain(3), 2.0},
        DrafterCase{"tree", {.num_steps = 3, .top_k = 3, .num_draft_tokens = 10}, 2.0},
        DrafterCase{"sparse_chain_2", chain(2), 1.1, true},
        DrafterCase{
            "sparse_tree", {.num_steps = 3, .top_k = 3, .num_draft_tokens = 10}, 1.2, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ModelSpeculation, equals_plain_decoding_in_every_way_to_compute_it) {
  const std::unique_ptr<ModelRunner> speculating = runner();
  int64_t num_cached = 0, num_retractions = 0;
  double best = 0;
  for (const int chunk : {16, 256})
    for (const bool radix : {false, true}) {
      const bool overlap = radix == (chunk == 16);
      SCOPED_TRACE("chunks of " + std::to_string(chunk) + ", radix " + std::to_string(radix) +
                   ", overlap " + std::to_string(overlap));
      const bool retract = chunk == 16;
      const LoopAnswers answers = run(*speculating,
                                      {.chunked_prefill_size = chunk,
                                       .max_running_requests = chunk == 16 ? 3 : 8,
                                       .radix_cache = radix,
                                       .overlap = overlap},
                                      retract);
      expect_plain(answers);
      num_cached += answers.stats.num_cached_tokens;
      num_retractions += answers.stats.num_retractions;
      best = std::max(best, answers.speculation.accept_length());
    }
  EXPECT_GT(num_cached, 0);
  EXPECT_GT(num_retractions, 2);
  EXPECT_GT(best, kThreadSanitizer ? 1.0 : GetParam().least_accepted);
}

TEST_P(ModelSpeculation, an_adaptive_depth_changes_no_token) {
  expect_plain(run(*runner(), {.speculation = {.adaptive = true}}));
}

TEST_P(ModelSpeculation, captured_steps_change_no_token) {
  const std::unique_ptr<ModelRunner> captured = runner({1, 2, 8});
  for (const bool adaptive : {false, true})
    expect_plain(run(*captured, {.speculation = {.adaptive = adaptive}}));
}

TEST_P(ModelSpeculation, a_failed_row_ends_its_request_alone) {
  const std::unique_ptr<ModelRunner> speculating = runner();
  StepLoopConfig config{.speculation = {.enabled = true}, .eos_token_ids = {kDemoEos}};
  StepLoop loop(*speculating, config);
  Recorder recorder(loop);
  for (int number = 0; number < 4; ++number)
    ASSERT_TRUE(loop.add(numbered_request(number, speculating->info().vocab_size)));
  recorder.step();
  recorder.step();
  arm_failpoint("model_runner.logits", 1);
  recorder.run();
  disarm_failpoints();
  int num_failed = 0;
  LoopAnswers answers;
  for (const auto& [id, output] : recorder.finished) {
    if (output.finish_reason == core::FinishReason::kFailed) {
      ++num_failed;
      EXPECT_NE(output.error.find("are not finite"), std::string::npos) << output.error;
      continue;
    }
    answers.outputs[static_cast<int>(id)] = output;
  }
  EXPECT_EQ(num_failed, 1);
  expect_plain(answers);
  testing::expect_everything_returned(loop, speculating->info());
}

}  // namespace
}  // namespace fathom::engine
