// A model with one attention form (--deterministic): what a request gets, tokens and log-probabilities bit for
// bit, depends on the request alone. Requests of every kind (request_mix.h) run through every way to compute them,
// plain and with each kind of drafts, and are compared with their answers alone: plain, on one thread, without prefix
// cache and overlap, the prompt in one chunk. The model is the demo checkpoint as it is served, with FP8 activations,
// which turn a last bit into a visible difference now and then.
//
// FATHOM_DETERMINISTIC_REQUESTS=10000 runs that many mixed requests instead of a few hundred, and every way with every
// kind of drafts and every number of running requests. FATHOM_DETERMINISTIC_SEED draws others; a run prints it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>

#include "base/failpoint.h"
#include "engine/step_loop.h"
#include "tests/engine/request_mix.h"
#include "tests/runner/demo_model.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using fathom::testing::kDemoEos;
using fathom::testing::kNumThreads;
using model::AttentionForm;
using runner::DrafterInfo;
using runner::ModelRunner;
using testing::Client;
using testing::kNumMixedKinds;
using testing::mixed_request;

using Tokens = std::vector<int32_t>;

constexpr int kMatrixRequests = kIsSanitized ? kNumMixedKinds : 16;
// Requests of one loop in the large run and in the usual one.
constexpr int kLargeGroup = 120, kSmallGroup = 40;
// Different requests that the large run draws from: their answers alone are what costs.
constexpr int kNumDifferent = 600;

struct Drafting {
  const char* name;
  DrafterInfo shape;
};
constexpr Drafting kPlain{"plain", {}};
constexpr Drafting kDraftings[] = {
    kPlain,
    {"chain of 1", {.num_steps = 1, .top_k = 1, .num_draft_tokens = 2}},
    {"chain of 2", {.num_steps = 2, .top_k = 1, .num_draft_tokens = 3}},
    {"chain of 3", {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}},
    {"tree of 4", {.num_steps = 2, .top_k = 4, .num_draft_tokens = 4}},
    {"tree of 8", {.num_steps = 2, .top_k = 4, .num_draft_tokens = 8}}};
// Where a GPU verifies a tree its rows lie apart, so its sums have other last bits (docs/contracts/runner.md,
// section 8): trees, which come last, are compared on a CPU.
size_t num_draftings() {
  constexpr size_t kNumPlainAndChains = 4;
  static_assert(kDraftings[kNumPlainAndChains].shape.top_k > 1);
  const bool skips_gaps = !fathom::testing::invariant_backend().device_memory;
  return skips_gaps ? std::size(kDraftings) : kNumPlainAndChains;
}

std::unique_ptr<model::Model> load(AttentionForm form,
                                   tensor::DType kv_cache_dtype = tensor::DType::kF32) {
  const ops::Backend& backend = fathom::testing::invariant_backend();
  // A GPU has no cache of float32.
  if (backend.device_memory && kv_cache_dtype == tensor::DType::kF32)
    kv_cache_dtype = tensor::DType::kBf16;
  return fathom::testing::load_demo(backend,
                                    {.kv_cache_dtype = kv_cache_dtype, .attention_form = form});
}

std::unique_ptr<ModelRunner> make_runner(const model::Model& model, int num_threads,
                                         const Drafting& drafting = kPlain) {
  return ModelRunner::create(model, {.max_slots = 64,
                                     .max_batch_tokens = 2048,
                                     .context_length = 512,
                                     .max_total_tokens = 200 * 64,
                                     .num_threads = num_threads,
                                     .drafter = drafting.shape});
}

struct Way {
  StepLoopConfig config{};
  bool retract = false;  // every three steps, if two requests run or more
  size_t drafting = 0;   // of kDraftings
  std::string name() const {
    return std::string(kDraftings[drafting].name) + ", adaptive " +
           std::to_string(config.speculation.adaptive) + ", radix " +
           std::to_string(config.radix_cache) + ", overlap " + std::to_string(config.overlap) +
           ", chunks of " + std::to_string(config.chunked_prefill_size) + ", running " +
           std::to_string(config.max_running_requests) + ", retraction " + std::to_string(retract);
  }
};

struct Answers {
  std::vector<std::string> answers{};  // of the requests, in their order
  std::vector<Tokens> tokens{};
  StepLoopStats stats{};
  core::SpeculationCounts speculation{};
  int num_stop_strings = 0;
};

Answers run(ModelRunner& runner, const std::vector<int>& numbers, const Way& way) {
  StepLoopConfig config = way.config;
  config.eos_token_ids = {kDemoEos};
  config.speculation.enabled = runner.info().drafter.num_steps > 0;
  StepLoop loop(runner, config);
  Client client(loop);
  for (size_t i = 0; i < numbers.size(); ++i)
    client.add(mixed_request(numbers[i]), static_cast<core::RequestId>(i));
  for (int step = 1; client.step(); ++step)
    if (way.retract && step % 3 == 0) arm_failpoint("scheduler.retract", 1);
  disarm_failpoints();
  Answers answers{.stats = loop.stats(),
                  .speculation = client.speculation,
                  .num_stop_strings = client.num_stop_strings};
  for (size_t i = 0; i < numbers.size(); ++i) {
    answers.answers.push_back(client.answers[static_cast<core::RequestId>(i)]);
    answers.tokens.push_back(client.tokens[static_cast<core::RequestId>(i)]);
  }
  return answers;
}

std::vector<int> up_to(int end) {
  std::vector<int> numbers;
  for (int number = 0; number < end; ++number) numbers.push_back(number);
  return numbers;
}

class Deterministic : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = load(AttentionForm::kAbsorbed).release();
    solo_runner_ = make_runner(*model_, 1).release();
  }
  static void TearDownTestSuite() {
    runners_.clear();
    delete solo_runner_;
    delete model_;
  }

  static ModelRunner& runner(size_t drafting = 0) {
    std::unique_ptr<ModelRunner>& runner = runners_[drafting];
    if (runner == nullptr) runner = make_runner(*model_, kNumThreads, kDraftings[drafting]);
    return *runner;
  }

  static const std::string& alone(int number) {
    std::string& answer = alone_[number];
    if (answer.empty())
      answer = run(*solo_runner_, {number}, {.config = {.radix_cache = false, .overlap = false}})
                   .answers.at(0);
    return answer;
  }

  static Answers expect_alone(const std::vector<int>& numbers, const Way& way) {
    Answers answers = run(runner(way.drafting), numbers, way);
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(answers.answers[i], alone(numbers[i]))
          << "request " << numbers[i] << ", " << way.name();
    return answers;
  }

  static model::Model* model_;
  static ModelRunner* solo_runner_;
  static std::map<size_t, std::unique_ptr<ModelRunner>> runners_;  // by drafting
  static std::map<int, std::string> alone_;
};

model::Model* Deterministic::model_ = nullptr;
ModelRunner* Deterministic::solo_runner_ = nullptr;
std::map<size_t, std::unique_ptr<ModelRunner>> Deterministic::runners_;
std::map<int, std::string> Deterministic::alone_;

int number_from(const char* variable, int usual) {
  const char* const wanted = std::getenv(variable);
  const int number = wanted != nullptr ? std::atoi(wanted) : usual;
  EXPECT_GT(number, 0) << variable << " is " << wanted;
  return number;
}

int seed_wanted() { return number_from("FATHOM_DETERMINISTIC_SEED", 7); }

bool wants_everything() { return std::getenv("FATHOM_DETERMINISTIC_REQUESTS") != nullptr; }

template <class T>
int num_different(const std::vector<T>& a, const std::vector<T>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

std::vector<int> chunk_sizes() {
  return kIsSanitized ? std::vector<int>{16} : std::vector<int>{16, 61, 256, 2048};
}

// What a way is computed with, apart from how its steps are cut.
struct Load {
  size_t drafting = 0;
  int max_running_requests = 0;
};

// Every kind of drafts with one request, a few and all of them at a time; a retraction takes two.
std::vector<Load> every_load(bool retract) {
  std::vector<Load> loads;
  for (size_t drafting = 0; drafting < num_draftings(); ++drafting)
    for (const int running : {retract ? 2 : 1, 5, 64}) loads.push_back({drafting, running});
  return loads;
}

// All ways there are, or each way to cut steps once, with loads from two shuffled decks, one for ways with
// retractions: 16 of 18 of each, so every kind of drafts meets both, whatever else the way is. A GPU has fewer loads
// than there are ways, so its decks are dealt again.
std::vector<Way> ways_of_the_matrix() {
  std::mt19937_64 random(static_cast<uint64_t>(seed_wanted()));
  std::array<std::vector<Load>, 2> decks = {every_load(false), every_load(true)};
  for (std::vector<Load>& deck : decks) std::shuffle(deck.begin(), deck.end(), random);
  std::vector<Way> ways;
  for (const int chunk : chunk_sizes())
    for (const bool radix : {false, true})
      for (const bool overlap : {false, true})
        for (const bool retract : {false, true}) {
          std::vector<Load>& deck = decks[retract];
          std::vector<Load> loads = deck;
          if (!wants_everything()) {
            if (deck.empty()) deck = every_load(retract);
            loads = {deck.back()};
            deck.pop_back();
          }
          for (const Load& load : loads)
            ways.push_back({.config = {.chunked_prefill_size = chunk,
                                       .max_running_requests = load.max_running_requests,
                                       .radix_cache = radix,
                                       .overlap = overlap},
                            .retract = retract,
                            .drafting = load.drafting});
        }
  return ways;
}

TEST_F(Deterministic, answers_depend_on_the_request_alone_in_every_way_to_compute_them) {
  const std::vector<Way> ways = ways_of_the_matrix();
  int64_t num_cached = 0, num_retractions = 0;
  std::array<int64_t, std::size(kDraftings)> num_accepted{};
  std::array<std::set<bool>, std::size(kDraftings)> retracted{};
  for (const Way& way : ways) {
    const Answers answers = expect_alone(up_to(kMatrixRequests), way);
    EXPECT_EQ(answers.stats.num_retractions > 0, way.retract) << way.name();
    retracted[way.drafting].insert(way.retract);
    num_cached += answers.stats.num_cached_tokens;
    num_retractions += answers.stats.num_retractions;
    num_accepted[way.drafting] += answers.speculation.num_drafts_accepted;
  }
  EXPECT_GT(num_cached, 0);
  EXPECT_GT(num_retractions, kMatrixRequests);
  for (size_t drafting = 0; drafting < num_draftings(); ++drafting) {
    if (kIsSanitized) break;  // too few ways
    EXPECT_EQ(retracted[drafting].size(), 2u) << kDraftings[drafting].name;
    EXPECT_EQ(num_accepted[drafting] > 0, drafting > 0) << kDraftings[drafting].name;
  }
  std::printf("%zu ways, %lld retractions\n", ways.size(), static_cast<long long>(num_retractions));
}

TEST_F(Deterministic, mixed_requests_in_batches_of_any_size_get_their_answers_alone) {
  const int group = wants_everything() ? kLargeGroup : kSmallGroup;
  const int total =
      number_from("FATHOM_DETERMINISTIC_REQUESTS",
                  kIsSanitized ? kSmallGroup : static_cast<int>(num_draftings()) * kSmallGroup);
  const int seed = seed_wanted();
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  const int num_different = std::min(total, kNumDifferent);
  std::set<int> different;
  std::array<int64_t, std::size(kDraftings)> num_accepted{};
  int64_t num_stop_strings = 0, num_retractions = 0;
  for (int done = 0; done < total; done += group) {
    const std::vector<int> chunks = chunk_sizes();
    const bool retract = random() % 2 == 0;
    const Way way{.config = {.chunked_prefill_size = chunks[random() % chunks.size()],
                             .max_running_requests =
                                 static_cast<int>(retract ? 2 + random() % 63 : 1 + random() % 64),
                             .radix_cache = random() % 4 != 0,
                             .overlap = random() % 4 != 0,
                             .speculation = {.adaptive = random() % 4 == 0}},
                  .retract = retract,
                  .drafting = static_cast<size_t>(done / group + seed) % num_draftings()};
    std::vector<int> numbers(static_cast<size_t>(std::min(group, total - done)));
    for (int& number : numbers)
      number = static_cast<int>(random() % static_cast<uint64_t>(num_different));
    different.insert(numbers.begin(), numbers.end());
    const Answers answers = expect_alone(numbers, way);
    num_accepted[way.drafting] += answers.speculation.num_drafts_accepted;
    num_stop_strings += answers.num_stop_strings;
    num_retractions += answers.stats.num_retractions;
  }
  const auto all_accepted = std::accumulate(num_accepted.begin(), num_accepted.end(), int64_t{0});
  std::printf(
      "%d mixed requests, %zu distinct, seed %d: %lld drafts accepted, %lld stop strings found, "
      "%lld retractions\n",
      total, different.size(), seed, static_cast<long long>(all_accepted),
      static_cast<long long>(num_stop_strings), static_cast<long long>(num_retractions));
  EXPECT_GT(num_stop_strings, 0);
  EXPECT_GT(num_retractions, 0);
  // A group for each of them at least.
  for (size_t drafting = 0; drafting < num_draftings(); ++drafting) {
    if (total < static_cast<int>(num_draftings()) * group) break;
    EXPECT_EQ(num_accepted[drafting] > 0, drafting > 0) << kDraftings[drafting].name;
  }
}

TEST_F(Deterministic, batches_from_one_to_sixty_four) {
  size_t drafting = 0;
  for (const int size : {2, 3, 9, 33, 64}) {
    if (kIsSanitized && size > 9) break;
    for (const size_t of_size : {size_t{0}, ++drafting % num_draftings()})
      expect_alone(up_to(size), {.config = {.radix_cache = false}, .drafting = of_size});
  }
}

TEST_F(Deterministic, with_an_fp8_cache_too) {
  const std::unique_ptr<model::Model> model =
      load(AttentionForm::kAbsorbed, tensor::DType::kF8E4M3);
  const std::unique_ptr<ModelRunner> solo = make_runner(*model, 1);
  std::vector<std::string> expected;
  for (const int number : up_to(kNumMixedKinds))
    expected.push_back(
        run(*solo, {number}, {.config = {.radix_cache = false, .overlap = false}}).answers.at(0));
  for (const Drafting& drafting : {kPlain, kDraftings[3], kDraftings[num_draftings() - 1]}) {
    const std::unique_ptr<ModelRunner> threaded = make_runner(*model, kNumThreads, drafting);
    for (const int chunk : {16, 2048})
      EXPECT_EQ(run(*threaded, up_to(kNumMixedKinds),
                    {.config = {.chunked_prefill_size = chunk}, .retract = chunk == 16})
                    .answers,
                expected)
          << drafting.name << ", chunks of " << chunk;
  }
}

// What the flag is for: the usual choice of the form by a slice's length shows in the bits.
TEST_F(Deterministic, without_one_form_the_chunk_size_changes_bits) {
  const std::unique_ptr<model::Model> model = load(AttentionForm::kAuto);
  const std::unique_ptr<ModelRunner> of_any_form = make_runner(*model, kNumThreads);
  const auto in_chunks = [](ModelRunner& any, int end, int chunk) {
    return run(any, up_to(end), {.config = {.chunked_prefill_size = chunk, .radix_cache = false}});
  };
  const int total =
      std::min(number_from("FATHOM_DETERMINISTIC_REQUESTS", kMatrixRequests), kNumDifferent);
  const Answers small = in_chunks(*of_any_form, total, 16),
                large = in_chunks(*of_any_form, total, 2048);
  const int num_bits = num_different(small.answers, large.answers);
  EXPECT_GT(num_bits, 0);
  std::printf("chunks of 16 and 2048: of %d answers %d differ in bits, %d in tokens\n", total,
              num_bits, num_different(small.tokens, large.tokens));
  EXPECT_EQ(in_chunks(runner(), kMatrixRequests, 16).answers,
            in_chunks(runner(), kMatrixRequests, 2048).answers);
}

// The form is chosen for prompts alone: decodes and drafts are absorbed. So drafts change nothing where prompts are
// cut alike, as these are: all in the first step, none computed again.
TEST_F(Deterministic, without_one_form_drafts_change_no_bit_of_prompts_cut_alike) {
  constexpr size_t kMostPromptTokens = 2048;
  const std::unique_ptr<model::Model> model = load(AttentionForm::kAuto);
  std::vector<int> numbers;
  size_t num_prompt_tokens = 0;
  std::set<AttentionForm> forms;
  for (const int number : up_to(kIsSanitized ? kMatrixRequests : 40)) {
    const size_t length = mixed_request(number).request.prompt.size();
    if (num_prompt_tokens + length > kMostPromptTokens) continue;
    num_prompt_tokens += length;
    numbers.push_back(number);
    forms.insert(model->attention_form(static_cast<int64_t>(length), 0));
  }
  ASSERT_EQ(forms.size(), 2u);
  for (const bool overlap : {false, true}) {
    const Way way{.config = {.radix_cache = false, .overlap = overlap}};
    const Answers plain = run(*make_runner(*model, kNumThreads), numbers, way);
    EXPECT_GT(num_different(plain.answers, run(runner(), numbers, way).answers), 0);
    for (size_t i = 0; i < num_draftings(); ++i) {
      const Drafting& drafting = kDraftings[i];
      const Answers answers = run(*make_runner(*model, kNumThreads, drafting), numbers, way);
      EXPECT_EQ(answers.answers, plain.answers) << drafting.name << ", overlap " << overlap;
      EXPECT_EQ(answers.stats.num_prefill_tokens, static_cast<int64_t>(num_prompt_tokens));
      EXPECT_EQ(answers.speculation.num_drafts_accepted > 0, drafting.shape.num_steps > 0);
    }
  }
}

}  // namespace
}  // namespace fathom::engine
