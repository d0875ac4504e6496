// A model with one attention form (--deterministic): what a request gets, tokens and log-probabilities bit for
// bit, depends on the request alone. Requests of every kind run through every way to compute them and are
// compared with their answers alone, on one thread, without prefix cache and overlap, the prompt in one
// chunk. The model is the demo checkpoint as it is served, with FP8 activations, which turn a last bit
// into a visible difference now and then.
//
// FATHOM_DETERMINISTIC_REQUESTS=10000 runs that many mixed requests instead of a few hundred.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <random>
#include <sstream>

#include "base/failpoint.h"
#include "engine/step_loop.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"
#include "tests/runner/demo_model.h"

namespace fathom::engine {
namespace {

using fathom::testing::kDemoEos;
using fathom::testing::kNumThreads;
using model::AttentionForm;
using runner::ModelRunner;
using testing::Recorder;

using Tokens = std::vector<int32_t>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

constexpr int kNumKinds = 8;
constexpr int kMatrixRequests = kIsSanitized ? kNumKinds : 2 * kNumKinds;
constexpr int kGroup = 120;  // requests of one loop in the large run

std::unique_ptr<model::Model> load(AttentionForm form,
                                   tensor::DType kv_cache_dtype = tensor::DType::kF32) {
  return fathom::testing::load_demo(
      cpu::fast_backend(),
      {.kv_cache_dtype = kv_cache_dtype, .load_mtp = false, .attention_form = form});
}

std::unique_ptr<ModelRunner> make_runner(const model::Model& model, int num_threads) {
  return ModelRunner::create(model, {.max_slots = 64,
                                     .max_batch_tokens = 2048,
                                     .context_length = 512,
                                     .max_total_tokens = 200 * 64,
                                     .num_threads = num_threads});
}

// Prompts of a text that everybody knows, and of one's own after a shared beginning: whole blocks, parts of
// one and nothing in common.
Tokens prompt_of(std::mt19937_64& random) {
  static const std::vector<fathom::testing::GoldenPrompt> golden = fathom::testing::load_golden();
  const Tokens& text = golden[2].prompt_ids;
  const size_t shared = std::vector<size_t>{0, 20, 64, 70, 128}[random() % 5];
  const size_t length = shared + 1 + random() % (random() % 8 == 0 ? 120 : 24);
  Tokens prompt;
  for (size_t i = 0; i < shared; ++i) prompt.push_back(text[i % text.size()]);
  while (prompt.size() < length) prompt.push_back(static_cast<int32_t>(3 + random() % 2000));
  return prompt;
}

void choose_kind(int kind, core::Request& request) {
  core::SamplingParams& params = request.sampling;
  switch (kind) {
    case 1:
      params.temperature = 0.8f;
      params.top_p = 0.9f;
      break;
    case 2:
      params.temperature = 1.3f;
      params.top_k = 20;
      params.min_p = 0.02f;
      break;
    case 3:
      params.temperature = 0.6f;
      params.repetition_penalty = 1.2f;
      params.frequency_penalty = 0.5f;
      params.presence_penalty = 0.3f;
      break;
    case 4:
      params.temperature = 1;
      request.constraint = std::make_shared<testing::ToyConstraint>(testing::ToyConstraint::Rule{
          .vocab_size = 2048, .divisor = 7, .min_tokens = 3, .eos_token_ids = {kDemoEos}});
      break;
    case 5:
      params.num_top_logprobs = 5;
      params.return_prompt_logprobs = true;
      break;
    case 6:
      params.temperature = 1;
      params.min_new_tokens = 2;
      for (int32_t id = 0; id < 2048; id += 5) params.stop_token_ids.push_back(id);
      break;
    case 7:
      params.temperature = 1.1f;
      params.logit_bias = {{17, 4.0f}, {300, 3.5f}, {5, -100.0f}};
      break;
    default:
      break;
  }
}

// The same request each time it is asked for; number % kNumKinds is its kind.
core::Request request_of(int number) {
  std::mt19937_64 random(static_cast<uint64_t>(number) + 1);
  core::Request request{.id = number, .prompt = prompt_of(random)};
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = 4 + static_cast<int>(random() % 5);
  request.sampling.return_logprobs = true;
  request.sampling.seed = random();
  choose_kind(number % kNumKinds, request);
  request.priority = static_cast<int>(random() % 2);
  request.cache_salt = random() % 5 == 0 ? "salt" : "";
  return request;
}

void describe(std::ostream& out, const std::vector<core::SampledToken>& tokens) {
  for (const core::SampledToken& token : tokens) {
    out << " " << token.token << ":" << token.logprob;
    for (const auto& [id, logprob] : token.top_logprobs) out << "," << id << ":" << logprob;
  }
}

// Everything that a client can see, every bit of it.
std::string describe(const core::RequestOutput& output) {
  std::ostringstream out;
  out << std::hexfloat << "tokens";
  describe(out, output.tokens);
  out << "; prompt";
  describe(out, output.prompt_logprobs);
  out << "; finish " << static_cast<int>(output.finish_reason) << " " << output.matched_stop_token
      << " " << output.error;
  return out.str();
}

struct Way {
  StepLoopConfig config{};
  bool retract = false;  // every three steps
  std::string name() const {
    return "radix " + std::to_string(config.radix_cache) + ", overlap " +
           std::to_string(config.overlap) + ", chunks of " +
           std::to_string(config.chunked_prefill_size) + ", running " +
           std::to_string(config.max_running_requests) + ", retraction " + std::to_string(retract);
  }
};

struct Answers {
  std::map<int, std::string> by_number{};
  std::map<int, Tokens> tokens{};
  StepLoopStats stats{};
};

Answers run(ModelRunner& runner, int first, int end, const Way& way) {
  StepLoopConfig config = way.config;
  config.eos_token_ids = {kDemoEos};
  StepLoop loop(runner, config);
  Recorder recorder(loop);
  for (int number = first; number < end; ++number) {
    const Status added = loop.add(request_of(number));
    EXPECT_TRUE(added) << added.error().message;
  }
  for (int step = 1; recorder.step(); ++step)
    if (way.retract && step % 3 == 0) arm_failpoint("scheduler.retract", 1);
  disarm_failpoints();
  Answers answers{.stats = loop.stats()};
  for (const auto& [id, output] : recorder.finished) {
    answers.by_number[static_cast<int>(id)] = describe(output);
    answers.tokens[static_cast<int>(id)] = testing::ids_of(output.tokens);
  }
  return answers;
}

class Deterministic : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load(AttentionForm::kAbsorbed).release();
    runner_ = make_runner(*model_, kNumThreads).release();
    solo_runner_ = make_runner(*model_, 1).release();
  }
  static void TearDownTestSuite() {
    delete runner_;
    delete solo_runner_;
    delete model_;
  }

  static const std::string& alone(int number) {
    std::string& answer = alone_[number];
    if (answer.empty())
      answer = run(*solo_runner_, number, number + 1,
                   {.config = {.radix_cache = false, .overlap = false}})
                   .by_number.at(number);
    return answer;
  }

  static StepLoopStats expect_alone(int first, int end, const Way& way) {
    const Answers answers = run(*runner_, first, end, way);
    EXPECT_EQ(static_cast<int>(answers.by_number.size()), end - first) << way.name();
    for (const auto& [number, answer] : answers.by_number)
      EXPECT_EQ(answer, alone(number)) << "request " << number << ", " << way.name();
    return answers.stats;
  }

  static model::Model* model_;
  static ModelRunner* runner_;
  static ModelRunner* solo_runner_;
  static std::map<int, std::string> alone_;
};

model::Model* Deterministic::model_ = nullptr;
ModelRunner* Deterministic::runner_ = nullptr;
ModelRunner* Deterministic::solo_runner_ = nullptr;
std::map<int, std::string> Deterministic::alone_;

int num_mixed_requests(int usual) {
  const char* const wanted = std::getenv("FATHOM_DETERMINISTIC_REQUESTS");
  const int total = wanted != nullptr ? std::atoi(wanted) : usual;
  EXPECT_GT(total, 0) << "FATHOM_DETERMINISTIC_REQUESTS is " << wanted;
  return total;
}

template <class Map>
int num_different(const Map& a, const Map& b) {
  int count = 0;
  for (const auto& [number, answer] : a) count += answer != b.at(number) ? 1 : 0;
  return count;
}

std::vector<int> chunk_sizes() {
  return kIsSanitized ? std::vector<int>{16} : std::vector<int>{16, 61, 256, 2048};
}

TEST_F(Deterministic, answers_depend_on_the_request_alone_in_every_way_to_compute_them) {
  const int running[] = {1, 5, 64};
  size_t cell = 0;
  int64_t num_cached = 0, num_retractions = 0;
  for (const int chunk : chunk_sizes())
    for (const bool radix : {false, true})
      for (const bool overlap : {false, true})
        for (const bool retract : {false, true}) {
          const StepLoopStats stats =
              expect_alone(0, kMatrixRequests,
                           {.config = {.chunked_prefill_size = chunk,
                                       .max_running_requests = running[cell++ % 3],
                                       .radix_cache = radix,
                                       .overlap = overlap},
                            .retract = retract});
          num_cached += stats.num_cached_tokens;
          num_retractions += stats.num_retractions;
        }
  EXPECT_GT(num_cached, 0);
  EXPECT_GT(num_retractions, kMatrixRequests);
}

TEST_F(Deterministic, mixed_requests_in_batches_of_any_size_get_their_answers_alone) {
  const int total = num_mixed_requests(kIsSanitized ? 40 : 2 * kGroup);
  std::mt19937_64 random(7);
  for (int first = 0; first < total; first += kGroup) {
    const std::vector<int> chunks = chunk_sizes();
    const Way way{.config = {.chunked_prefill_size = chunks[random() % chunks.size()],
                             .max_running_requests = 1 + static_cast<int>(random() % 64),
                             .radix_cache = random() % 4 != 0,
                             .overlap = random() % 4 != 0},
                  .retract = random() % 2 == 0};
    expect_alone(first, std::min(first + kGroup, total), way);
    for (auto answer = alone_.lower_bound(kMatrixRequests); answer != alone_.end();)
      answer = alone_.erase(answer);
  }
}

TEST_F(Deterministic, batches_from_one_to_sixty_four) {
  for (const int size : {2, 3, 9, 33, 64}) {
    if (kIsSanitized && size > 9) break;
    expect_alone(0, size, {.config = {.radix_cache = false}});
  }
}

TEST_F(Deterministic, with_an_fp8_cache_too) {
  const std::unique_ptr<model::Model> model =
      load(AttentionForm::kAbsorbed, tensor::DType::kF8E4M3);
  const std::unique_ptr<ModelRunner> threaded = make_runner(*model, kNumThreads);
  const std::unique_ptr<ModelRunner> solo = make_runner(*model, 1);
  std::map<int, std::string> expected;
  for (int number = 0; number < kNumKinds; ++number)
    expected[number] =
        run(*solo, number, number + 1, {.config = {.radix_cache = false, .overlap = false}})
            .by_number.at(number);
  for (const int chunk : {16, 2048})
    EXPECT_EQ(run(*threaded, 0, kNumKinds,
                  {.config = {.chunked_prefill_size = chunk}, .retract = chunk == 16})
                  .by_number,
              expected)
        << "chunks of " << chunk;
}

// What the flag is for: the usual choice of the form by a slice's length shows in the bits.
TEST_F(Deterministic, without_one_form_the_chunk_size_changes_bits) {
  const std::unique_ptr<model::Model> model = load(AttentionForm::kAuto);
  const std::unique_ptr<ModelRunner> runner = make_runner(*model, kNumThreads);
  const auto in_chunks = [](ModelRunner& any, int end, int chunk) {
    return run(any, 0, end, {.config = {.chunked_prefill_size = chunk, .radix_cache = false}});
  };
  const int total = num_mixed_requests(kMatrixRequests);
  const Answers small = in_chunks(*runner, total, 16), large = in_chunks(*runner, total, 2048);
  const int num_bits = num_different(small.by_number, large.by_number);
  EXPECT_GT(num_bits, 0);
  std::printf("chunks of 16 and 2048: of %d answers %d differ in bits, %d in tokens\n", total,
              num_bits, num_different(small.tokens, large.tokens));
  EXPECT_EQ(in_chunks(*runner_, kMatrixRequests, 16).by_number,
            in_chunks(*runner_, kMatrixRequests, 2048).by_number);
}

}  // namespace
}  // namespace fathom::engine
