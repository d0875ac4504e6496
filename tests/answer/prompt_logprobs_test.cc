#include <gtest/gtest.h>

#include "answer/pieces/logprobs.h"
#include "base/json.h"
#include "tests/answer/fed_answer.h"
#include "tests/api/demo_served_model.h"

namespace fathom::answer {
namespace {

TEST(PromptLogprobs, have_the_ranks_that_are_known) {
  const auto tokenizer = api::tests::demo_tokenizer();
  const std::vector<core::SampledToken> tokens = {
      {.token = 20, .logprob = -1.5F, .top_logprobs = {{30, -0.5F}, {20, -1.5F}}},
      {.token = 40, .logprob = -7.0F, .top_logprobs = {{30, -0.5F}, {20, -1.5F}}}};
  std::string out;
  append_prompt_logprobs(out, tokens, *tokenizer, 1);
  const auto entry = [&](float logprob, json::Value rank, int id) {
    return json::Value{{"logprob", logprob},
                       {"rank", std::move(rank)},
                       {"decoded_token", token_text(*tokenizer, id)}};
  };
  const json::Value expected = {nullptr,
                                {{"20", entry(-1.5F, 2, 20)}, {"30", entry(-0.5F, 1, 30)}},
                                {{"40", entry(-7.0F, nullptr, 40)}, {"30", entry(-0.5F, 1, 30)}}};
  EXPECT_EQ(json::parse(out).value(), expected) << out;
  out.clear();
  append_prompt_logprobs(out, {}, *tokenizer, 3);
  EXPECT_EQ(out, "[null]");
}

// A stream's thread serves others between two pieces.
TEST(PromptLogprobs, of_a_stream_are_written_in_pieces) {
  constexpr size_t kTokens = 5'000;
  const auto tokenizer = api::tests::demo_tokenizer();
  std::vector<core::SampledToken> tokens;
  for (size_t i = 1; i < kTokens; ++i)
    tokens.push_back({.token = 20, .logprob = -1.5F, .top_logprobs = {{30, -0.5F}, {20, -1.5F}}});
  const auto shared = std::make_shared<const std::vector<core::SampledToken>>(std::move(tokens));
  for (const api::Endpoint endpoint : {api::Endpoint::kCompletions, api::Endpoint::kGenerate}) {
    std::string events[2];
    for (const bool in_pieces : {false, true}) {
      api::ShownForm form = tests::shown_form(endpoint);
      form.echo = form.logprobs = true;
      form.top_logprobs = 2;
      form.prompt_texts = {"prompt"};
      ChoiceSetup setup = tests::plain_choice();
      setup.prompt.assign(kTokens, 20);
      setup.return_logprobs = setup.return_prompt_logprobs = true;
      setup.num_top_logprobs = 2;
      setup.logprob_start_len = 0;
      tests::FedAnswer answer(form, setup);
      EXPECT_TRUE(answer.choices[0].waits_for_prompt_logprobs());
      answer.choices[0].set_prompt_logprobs(shared);
      answer.end(core::FinishReason::kLength);
      size_t num_pieces = 1;
      while (in_pieces && !answer.renderer->prepare(answer.choices[0])) ++num_pieces;
      EXPECT_TRUE(!in_pieces || num_pieces * kPreparedValues >= kTokens * 3) << num_pieces;
      events[in_pieces] = answer.last_events();
    }
    const auto without_time = [](const std::string& text) {
      return text.substr(0, text.find("e2e_latency"));
    };
    EXPECT_EQ(without_time(events[0]), without_time(events[1]));
    EXPECT_GT(events[0].size(), kTokens * 20);
  }
}

// One that a client has left lying for long.
TEST(PromptLogprobs, of_what_a_native_stream_writes_are_prepared_in_pieces) {
  constexpr size_t kTokens = 10'000;
  std::string events[2];
  for (const bool in_pieces : {false, true}) {
    api::ShownForm form = tests::shown_form(api::Endpoint::kGenerate);
    ChoiceSetup setup = tests::plain_choice();
    setup.return_logprobs = true;
    setup.num_top_logprobs = 2;
    tests::FedAnswer answer(form, setup);
    const core::SampledToken token{
        .token = 20, .logprob = -1.5F, .top_logprobs = {{30, -0.5F}, {20, -1.5F}}};
    for (size_t i = 0; i < kTokens; ++i) answer.choices[0].push({&token, 1}, false);
    size_t num_pieces = 1;
    while (in_pieces && !answer.renderer->prepare(answer.choices[0])) ++num_pieces;
    EXPECT_TRUE(!in_pieces || num_pieces * kPreparedValues >= kTokens * 3) << num_pieces;
    answer.renderer->write_news(answer.choices[0], events[in_pieces]);
    const std::string written = events[in_pieces];
    answer.renderer->write_news(answer.choices[0], events[in_pieces]);
    EXPECT_EQ(events[in_pieces], written) << "nothing is new";
  }
  EXPECT_EQ(events[0], events[1]);
  EXPECT_GT(events[0].size(), kTokens);
}

}  // namespace
}  // namespace fathom::answer
