#include "api/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using ::testing::ElementsAre;
using tests::accepted;
using tests::demo_served_model;
using tests::refused;

GenerationRequest accept_completion(const std::string& body) {
  return accepted(parse_completion_request(body, demo_served_model()));
}

ApiError refuse_completion(const std::string& body) {
  return refused(parse_completion_request(body, demo_served_model()));
}

TEST(CompletionRequest, encodes_a_text_with_the_start_token_and_16_tokens_to_come) {
  const GenerationRequest request = accept_completion(R"({"model": "demo", "prompt": "1+1="})");
  EXPECT_EQ(request.form.endpoint, Endpoint::kCompletions);
  ASSERT_EQ(request.items.size(), 1U);
  const std::vector<int32_t>& prompt = request.items[0].prompt;
  EXPECT_EQ(prompt.front(), 0);
  EXPECT_EQ(tests::demo_tokenizer()->decode(prompt, true), "1+1=");
  EXPECT_EQ(request.items[0].sampling.max_new_tokens, 16);
  EXPECT_TRUE(request.form.prompt_texts.empty());
  EXPECT_FALSE(request.form.logprobs);
}

TEST(CompletionRequest, makes_an_item_of_every_prompt) {
  EXPECT_EQ(accept_completion(R"({"prompt": ["a", "b", "c"]})").items.size(), 3U);
  EXPECT_EQ(accept_completion(R"({"prompt": [5, 6]})").items.size(), 1U);
  const GenerationRequest lists = accept_completion(R"({"prompt": [[5, 6], [7]], "n": 2})");
  ASSERT_EQ(lists.items.size(), 2U);
  EXPECT_THAT(lists.items[0].prompt, ElementsAre(5, 6));
  EXPECT_THAT(lists.items[1].prompt, ElementsAre(7));
  EXPECT_EQ(lists.items[1].n, 2);
}

TEST(CompletionRequest, echo_with_logprobs_asks_for_those_of_the_prompt) {
  const GenerationRequest text =
      accept_completion(R"({"prompt": "1+1=", "echo": true, "logprobs": 0, "max_tokens": 0})");
  EXPECT_TRUE(text.form.logprobs);
  EXPECT_EQ(text.form.prompt_texts.at(0), "1+1=");
  EXPECT_TRUE(text.items[0].sampling.return_logprobs);
  EXPECT_TRUE(text.items[0].sampling.return_prompt_logprobs);
  const std::vector<int32_t> ids = text.items[0].prompt;
  const GenerationRequest of_ids = accept_completion(R"({"prompt": [)" + std::to_string(ids[1]) +
                                                     R"(], "echo": true, "logprobs": 2})");
  EXPECT_EQ(of_ids.form.prompt_texts.at(0),
            tests::demo_tokenizer()->decode(std::vector<int32_t>{ids[1]}, false));
  EXPECT_FALSE(accept_completion(R"({"prompt": "a", "logprobs": 2})")
                   .items[0]
                   .sampling.return_prompt_logprobs);
}

TEST(CompletionRequest, takes_what_bench_serving_sends) {
  const GenerationRequest request = accept_completion(
      R"({"model": "demo", "prompt": "a b c", "best_of": 1, "max_tokens": 32, "stream": true,
          "temperature": 0.0, "ignore_eos": true, "lora_path": null})");
  EXPECT_TRUE(request.form.stream);
  EXPECT_FALSE(request.form.include_usage);
  EXPECT_EQ(request.items[0].sampling.temperature, 0.0f);
  EXPECT_TRUE(request.items[0].sampling.ignore_eos);
  EXPECT_EQ(request.items[0].sampling.max_new_tokens, 32);
}

TEST(CompletionRequest, best_of_must_be_n) {
  EXPECT_EQ(accept_completion(R"({"prompt": "a", "best_of": 2, "n": 2})").items[0].n, 2);
  EXPECT_EQ(refuse_completion(R"({"prompt": "a", "best_of": 2})").param, "best_of");
}

TEST(CompletionRequest, refuses_features_that_are_not_here_and_takes_their_absence) {
  accept_completion(
      R"({"prompt": "a", "suffix": null, "stop_regex": [], "lora_path": "", "session_params": {},
          "return_hidden_states": false, "user": "u", "metadata": {"a": "b"}})");
  EXPECT_EQ(refuse_completion(R"({"prompt": "a", "suffix": "b"})").param, "suffix");
  EXPECT_EQ(refuse_completion(R"({"prompt": "a", "stop_regex": "b"})").param, "stop_regex");
  EXPECT_EQ(refuse_completion(R"({"prompt": "a", "return_hidden_states": true})").param,
            "return_hidden_states");
}

TEST(CompletionRequest, bounds_the_number_of_answers) {
  std::string prompts = "[1]";
  for (int i = 1; i < 512; ++i) prompts += ",[1]";
  EXPECT_EQ(accept_completion(R"({"prompt": [)" + prompts + R"(], "n": 2})").items.size(), 512U);
  EXPECT_EQ(refuse_completion(R"({"prompt": [)" + prompts + R"(], "n": 3})").param, "prompt");
}

TEST(CompletionRequest, names_the_prompt_that_is_wrong) {
  EXPECT_EQ(refuse_completion(R"({"prompt": []})").param, "prompt");
  EXPECT_EQ(refuse_completion(R"({"prompt": ["a", 1]})").param, "prompt[1]");
  EXPECT_EQ(refuse_completion(R"({"prompt": [[1], [1, 2048]]})").param, "prompt[1][1]");
  EXPECT_EQ(refuse_completion(R"({"prompt": [[1], []]})").param, "prompt[1]");
  EXPECT_EQ(refuse_completion(R"({})").param, "prompt");
}

}  // namespace
}  // namespace fathom::api
