#include <gtest/gtest.h>

#include "answer/logprobs.h"
#include "base/json.h"
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

}  // namespace
}  // namespace fathom::answer
