#include "tests/engine/request_mix.h"

#include <gtest/gtest.h>

#include <array>
#include <iomanip>
#include <random>
#include <sstream>

#include "grammar/expressions/expression.h"
#include "grammar/grammar.h"
#include "tests/engine/toy_constraint.h"
#include "tests/runner/demo_model.h"
#include "text/tokenizer.h"

namespace fathom::engine::testing {
namespace {

using fathom::testing::kDemoEos;

constexpr int kVocabSize = 2048;

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer tokenizer =
      std::move(*text::Tokenizer::load(fathom::testing::demo_path()));
  return tokenizer;
}

std::shared_ptr<const grammar::Vocabulary> vocabulary() {
  static const auto vocabulary = [] {
    std::vector<grammar::VocabularyToken> tokens(kVocabSize);
    for (int id = 0; id < std::min(kVocabSize, tokenizer().vocab_size()); ++id)
      tokens[static_cast<size_t>(id)] = {.bytes = tokenizer().token_bytes(id),
                                         .is_special = tokenizer().is_added(id)};
    return std::make_shared<const grammar::Vocabulary>(tokens, std::vector<int32_t>{kDemoEos});
  }();
  return vocabulary;
}

std::shared_ptr<core::TokenConstraint> schema_constraint() {
  static const auto grammar = value_or_throw(grammar::compile(grammar::json_schema(
      R"({"type": "object", "properties": {"n": {"type": "integer"}, "w": {"enum": ["ab", "abc"]}},
          "required": ["n", "w"], "additionalProperties": false})")));
  return grammar->new_constraint(vocabulary());
}

std::shared_ptr<core::TokenConstraint> regex_constraint() {
  static const auto grammar =
      value_or_throw(grammar::compile(grammar::regex("[A-Z][a-z ]{2,20}(, [a-z]+)*\\.")));
  return grammar->new_constraint(vocabulary());
}

std::vector<int32_t> prompt_of(std::mt19937_64& random) {
  static const std::vector<fathom::testing::GoldenPrompt> golden = fathom::testing::load_golden();
  constexpr std::array<size_t, 5> kShort = {0, 1, 3, 5, 6};
  if (random() % 2 == 0) return golden[kShort[random() % kShort.size()]].prompt_ids;
  const std::vector<int32_t>& text = golden[2].prompt_ids;
  const size_t shared = std::array<size_t, 5>{0, 20, 64, 70, 128}[random() % 5];
  const size_t length = shared + 1 + random() % (random() % 8 == 0 ? 120 : 24);
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < shared; ++i) prompt.push_back(text[i % text.size()]);
  while (prompt.size() < length) prompt.push_back(static_cast<int32_t>(3 + random() % 2000));
  return prompt;
}

void sample(core::SamplingParams& params, float temperature, float top_p, int top_k, float min_p) {
  params.temperature = temperature;
  params.top_p = top_p;
  params.top_k = top_k;
  params.min_p = min_p;
}

void penalise(core::SamplingParams& params) {
  params.repetition_penalty = 1.2f;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.3f;
}

void choose_kind(int kind, MixedRequest& mixed) {
  core::Request& request = mixed.request;
  core::SamplingParams& params = request.sampling;
  const core::SamplingParams defaults;
  switch (kind) {
    case 1:
      return sample(params, 0.8f, 0.9f, defaults.top_k, defaults.min_p);
    case 2:
      return sample(params, 1.3f, defaults.top_p, 20, 0.02f);
    case 3:
      params.temperature = 0.6f;
      return penalise(params);
    case 4:
      params.temperature = 1;
      request.constraint = std::make_shared<ToyConstraint>(ToyConstraint::Rule{
          .vocab_size = kVocabSize, .divisor = 7, .min_tokens = 3, .eos_token_ids = {kDemoEos}});
      return;
    case 5:
      params.num_top_logprobs = 5;
      params.return_prompt_logprobs = true;
      return;
    case 6:
      params.temperature = 1;
      params.min_new_tokens = 2;
      for (int32_t id = 0; id < kVocabSize; id += 5) params.stop_token_ids.push_back(id);
      return;
    case 7:
      params.temperature = 1.1f;
      params.logit_bias = {{17, 4.0f}, {300, 3.5f}, {5, -100.0f}};
      return;
    case 8:
      mixed.stop = std::make_shared<const text::StopStrings>(
          std::vector<std::string>{"1", "so ", "ea", "the answer"});
      return;
    case 9:
      params.temperature = 0.9f;
      params.min_new_tokens = 3;
      mixed.stop =
          std::make_shared<const text::StopStrings>(std::vector<std::string>{"\n", "e", "  "});
      return;
    case 10:
      params.temperature = 0.8f;
      request.constraint = schema_constraint();
      return;
    case 11:
      params.temperature = 1;
      penalise(params);
      request.constraint = regex_constraint();
      return;
    default:
      return;
  }
}

void describe(std::ostream& out, const std::vector<core::SampledToken>& tokens) {
  for (const core::SampledToken& token : tokens) {
    out << " " << token.token << ":" << token.logprob;
    for (const auto& [id, logprob] : token.top_logprobs) out << "," << id << ":" << logprob;
  }
}

}  // namespace

MixedRequest mixed_request(int number) {
  const bool is_copy = number % 4 == 3;
  std::mt19937_64 prompts(static_cast<uint64_t>(is_copy ? number - 1 : number) + 1);
  std::mt19937_64 random(static_cast<uint64_t>(number) + (uint64_t{1} << 32));
  MixedRequest mixed{.request = {.prompt = prompt_of(prompts)}};
  core::Request& request = mixed.request;
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = 4 + static_cast<int>(random() % (random() % 4 == 0 ? 28 : 9));
  request.sampling.return_logprobs = true;
  request.sampling.seed = random();
  choose_kind(number % kNumMixedKinds, mixed);
  request.priority = static_cast<int>(random() % 2);
  request.cache_salt = random() % 5 == 0 ? "salt" : "";
  return mixed;
}

Client::Client(StepLoop& loop) : loop_(loop) {
  collector_.on_tokens = [this](core::RequestId id, std::span<const core::SampledToken> step) {
    // An end by a stop token comes with the step's tokens; the text then has the token too, in each way alike.
    if (choices_.at(id).push(step, false)) loop_.stop(id);
  };
  collector_.on_finish = [this](const core::RequestOutput& output) {
    answer::Choice& choice = choices_.at(output.id);
    choice.end({.reason = output.finish_reason, .matched_stop_token = output.matched_stop_token});
    num_stop_strings += choice.stop_string_found() ? 1 : 0;
    speculation.num_verify_steps += output.speculation.num_verify_steps;
    speculation.num_drafts_accepted += output.speculation.num_drafts_accepted;
    std::ostringstream out;
    out << std::hexfloat << "tokens";
    describe(out, choice.news.tokens);
    out << "; text " << choice.news.text << "; prompt";
    describe(out, output.prompt_logprobs);
    out << "; finish " << static_cast<int>(choice.finish()) << " " << choice.matched_string() << " "
        << choice.matched_token() << " " << (choice.stop_string_found() ? "" : output.error);
    for (const core::SampledToken& token : choice.news.tokens)
      tokens[output.id].push_back(token.token);
    EXPECT_TRUE(answers.emplace(output.id, out.str()).second) << output.id << " ended twice";
  };
}

void Client::add(MixedRequest mixed, core::RequestId id) {
  mixed.request.id = id;
  answer::ChoiceSetup setup;
  setup.tokenizer = &tokenizer();
  setup.return_logprobs = true;
  setup.stop = mixed.stop;
  choices_.emplace(id, answer::Choice(std::move(setup)));
  const Status added = loop_.add(std::move(mixed.request));
  EXPECT_TRUE(added) << added.error().message;
}

}  // namespace fathom::engine::testing
