#include "api/generate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using ::testing::ElementsAre;
using tests::accepted;
using tests::demo_served_model;
using tests::refused;

GenerationRequest accept_generate(const std::string& body) {
  return accepted(parse_generate_request(body, demo_served_model()));
}

ApiError refuse_generate(const std::string& body) {
  return refused(parse_generate_request(body, demo_served_model()));
}

TEST(GenerateRequest, reads_one_text_with_128_tokens_to_come) {
  const GenerationRequest request = accept_generate(R"({"text": "a b"})");
  EXPECT_EQ(request.form.endpoint, Endpoint::kGenerate);
  EXPECT_FALSE(request.form.is_batch);
  EXPECT_EQ(request.items.at(0).sampling.max_new_tokens, 128);
  EXPECT_EQ(request.items[0].native.logprob_start_len, -1);
  EXPECT_EQ(request.items[0].native.stream_interval, 1);
}

TEST(GenerateRequest, takes_what_bench_serving_sends) {
  for (const char* prompt : {R"("text": "a b c")", R"("input_ids": [5, 6, 7])"}) {
    const GenerationRequest request = accept_generate(
        "{" + std::string(prompt) +
        R"(, "sampling_params": {"temperature": 0.0, "max_new_tokens": 20, "ignore_eos": true,
            "top_p": 1.0}, "stream": true, "lora_path": null, "return_logprob": false,
            "return_routed_experts": false, "logprob_start_len": -1})");
    EXPECT_TRUE(request.form.stream);
    EXPECT_FALSE(request.form.is_batch);
    EXPECT_FALSE(request.items.at(0).sampling.return_logprobs);
    EXPECT_EQ(request.items[0].sampling.max_new_tokens, 20);
    EXPECT_TRUE(request.items[0].sampling.ignore_eos);
  }
}

TEST(GenerateRequest, takes_what_bench_one_batch_server_sends) {
  const GenerationRequest request = accept_generate(
      R"({"input_ids": [[5, 6], [7, 8], [9, 10]], "sampling_params": {"temperature": 0.0,
          "max_new_tokens": 16, "ignore_eos": true, "json_schema": null, "stream_interval": 2},
          "return_logprob": false, "stream": true})");
  EXPECT_TRUE(request.form.is_batch);
  ASSERT_EQ(request.items.size(), 3U);
  EXPECT_THAT(request.items[2].prompt, ElementsAre(9, 10));
  EXPECT_EQ(request.items[2].native.stream_interval, 2);
  EXPECT_EQ(request.items[2].grammar->kind, GrammarSource::Kind::kNone);
}

TEST(GenerateRequest, takes_what_the_gsm8k_benchmark_sends) {
  const GenerationRequest request = accept_generate(
      R"({"text": "Question: 1+1?\nAnswer:", "sampling_params": {"skip_special_tokens": true,
          "spaces_between_special_tokens": true, "max_new_tokens": 512, "min_new_tokens": 0, "n": 1,
          "stop": ["Question", "Assistant:", "<|separator|>"], "stop_token_ids": null,
          "stop_regex": null, "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
          "frequency_penalty": 0.0, "presence_penalty": 0.0, "ignore_eos": false, "regex": null,
          "json_schema": null}})");
  const GenerationItem& item = request.items.at(0);
  EXPECT_THAT(item.stop, ElementsAre("Question", "Assistant:", "<|separator|>"));
  EXPECT_EQ(item.sampling.temperature, 0.0f);
  EXPECT_EQ(item.sampling.max_new_tokens, 512);
}

// A thousand prompts hold a long schema once.
TEST(GenerateRequest, prompts_share_the_grammar_that_is_said_for_all) {
  for (
      const char* const body :
      {R"({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 1, "regex": "a+"}})",
       R"({"input_ids": [[5], [6]], "sampling_params": {"max_new_tokens": 1, "ebnf": "root ::= \"a\""}})"}) {
    const GenerationRequest request = accept_generate(body);
    ASSERT_EQ(request.items.size(), 2u);
    EXPECT_NE(request.items[0].grammar->kind, GrammarSource::Kind::kNone);
    EXPECT_EQ(request.items[0].grammar, request.items[1].grammar);
  }
}

TEST(GenerateRequest, no_tokens_at_all_are_legal) {
  EXPECT_EQ(accept_generate(R"({"text": "a", "sampling_params": {"max_new_tokens": 0}})")
                .items.at(0)
                .sampling.max_new_tokens,
            0);
}

TEST(GenerateRequest, a_batch_may_have_settings_of_its_own_for_each_prompt) {
  const GenerationRequest request = accept_generate(
      R"({"text": ["a", "b"], "sampling_params": [{"temperature": 0}, {"max_new_tokens": 3}],
          "return_logprob": [true, false], "top_logprobs_num": [2, 0],
          "logprob_start_len": [0, -1], "rid": ["r1", "r2"]})");
  ASSERT_EQ(request.items.size(), 2U);
  const GenerationItem &first = request.items[0], &second = request.items[1];
  EXPECT_EQ(first.sampling.temperature, 0.0f);
  EXPECT_EQ(first.sampling.max_new_tokens, 128);
  EXPECT_TRUE(first.sampling.return_logprobs);
  EXPECT_TRUE(first.sampling.return_prompt_logprobs);
  EXPECT_EQ(first.sampling.num_top_logprobs, 2);
  EXPECT_EQ(first.native.logprob_start_len, 0);
  EXPECT_EQ(first.native.request_id, "r1");
  EXPECT_EQ(second.sampling.max_new_tokens, 3);
  EXPECT_FALSE(second.sampling.return_logprobs);
  EXPECT_EQ(second.native.request_id, "r2");
}

TEST(GenerateRequest, lists_must_match_the_prompts) {
  EXPECT_EQ(refuse_generate(R"({"text": ["a", "b"], "sampling_params": [{}]})").param,
            "sampling_params");
  EXPECT_EQ(refuse_generate(R"({"text": "a", "sampling_params": [{}]})").param, "sampling_params");
  EXPECT_EQ(refuse_generate(R"({"text": ["a", "b"], "return_logprob": [true]})").param,
            "return_logprob");
  EXPECT_EQ(refuse_generate(R"({"text": ["a", "b"], "rid": "x"})").param, "rid");
  EXPECT_EQ(refuse_generate(R"({"text": ["a", "b"], "rid": ["x", "x"]})").param, "rid[1]");
  EXPECT_EQ(refuse_generate(R"({"text": ["a", "b"], "sampling_params": [{}, {"n": 0}]})").param,
            "sampling_params[1].n");
}

TEST(GenerateRequest, wants_either_text_or_ids) {
  EXPECT_EQ(refuse_generate(R"({"text": "a", "input_ids": [1]})").param, "input_ids");
  EXPECT_EQ(refuse_generate(R"({})").param, "text");
  EXPECT_EQ(refuse_generate(R"({"text": [1]})").param, "text");
  EXPECT_EQ(refuse_generate(R"({"input_ids": "a"})").param, "input_ids");
  EXPECT_EQ(refuse_generate(R"({"input_ids": ["a"]})").param, "input_ids");
}

TEST(GenerateRequest, prompt_logprobs_start_inside_the_prompt) {
  EXPECT_EQ(accept_generate(R"({"input_ids": [1, 2], "return_logprob": true,
                                "logprob_start_len": 1})")
                .items.at(0)
                .native.logprob_start_len,
            1);
  EXPECT_EQ(refuse_generate(R"({"input_ids": [1, 2], "return_logprob": true,
                                "logprob_start_len": 2})")
                .param,
            "logprob_start_len");
}

TEST(GenerateRequest, a_raw_prompt_may_spell_special_tokens) {
  EXPECT_THAT(accept_generate(R"({"text": "<｜User｜>"})").items.at(0).prompt, ElementsAre(0, 3));
}

}  // namespace
}  // namespace fathom::api
