// Answers that repeat much of the prompt: bounded, and written beside the threads that serve streams.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value echo_of(int num_tokens, int num_choices, int num_alternatives) {
  return {{"prompt", std::vector<int>(static_cast<size_t>(num_tokens), 5)},
          {"max_tokens", 1},
          {"n", num_choices},
          {"temperature", 0},
          {"echo", true},
          {"logprobs", num_alternatives}};
}

TEST(LargeAnswers, what_is_too_large_is_refused_before_any_work) {
  SimServer server;
  const client::ClientResponse refused = server.post("/v1/completions", echo_of(10'000, 128, 20));
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find("28160000 values"), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("at most 600000"), std::string::npos) << refused.body;
  json::Value streamed = echo_of(5'000, 4, 20);
  EXPECT_EQ(server.post("/v1/completions", streamed).status, 200);
  streamed["stream"] = true;
  const client::ClientResponse cut = server.post("/v1/completions", streamed);
  EXPECT_EQ(cut.status, 400);
  EXPECT_NE(cut.body.find("at most 200000"), std::string::npos) << cut.body;
  const json::Value native = {{"input_ids", std::vector<int>(10'000, 5)},
                              {"sampling_params", {{"max_new_tokens", 1}, {"n", 128}}},
                              {"return_logprob", true},
                              {"logprob_start_len", 0},
                              {"top_logprobs_num", 5}};
  EXPECT_EQ(server.post("/generate", native).status, 400);
}

// 56,000 values are written elsewhere, 14,000 are not.
TEST(LargeAnswers, say_the_same_wherever_they_are_written) {
  SimServer server;
  const json::Value one = server.post_json("/v1/completions", echo_of(2'000, 1, 5));
  const json::Value four = server.post_json("/v1/completions", echo_of(2'000, 4, 5));
  ASSERT_EQ(four["choices"].size(), 4U);
  EXPECT_EQ(one["choices"][0]["logprobs"]["tokens"].size(), 2'001U);
  EXPECT_EQ(one["choices"][0], four["choices"][0]);
  EXPECT_EQ(four["choices"][3]["logprobs"], one["choices"][0]["logprobs"]);
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

int64_t prefill_tokens(SimServer& server) { return server.engine().snapshot().num_prefill_tokens; }

json::Value native_of(int num_tokens, int num_choices) {
  return {{"input_ids", std::vector<int>(static_cast<size_t>(num_tokens), 5)},
          {"sampling_params", {{"max_new_tokens", 8}, {"n", num_choices}, {"temperature", 0}}},
          {"return_logprob", true},
          {"logprob_start_len", 0},
          {"top_logprobs_num", 3}};
}

// In each lane; each choice computes the end of the last block besides.
TEST(LargeAnswers, log_probabilities_of_a_prompt_are_computed_once_for_all_choices) {
  SimServer server;
  const int most_tokens = 1'000 * tests::ranks_of_environment().num_lanes + 8 * 64;
  const int64_t at_first = prefill_tokens(server);
  const json::Value completion = server.post_json("/v1/completions", echo_of(1'000, 8, 5));
  const int64_t of_completion = prefill_tokens(server) - at_first;
  EXPECT_LT(of_completion, most_tokens);
  for (const json::Value& choice : completion["choices"])
    EXPECT_EQ(choice["logprobs"], completion["choices"][0]["logprobs"]);
  const json::Value native = server.post_json("/generate", native_of(1'000, 8));
  EXPECT_LT(prefill_tokens(server) - at_first - of_completion, most_tokens);
  ASSERT_EQ(native.size(), 8U);
  for (const json::Value& choice : native) {
    const json::Value& values = choice["meta_info"]["input_token_logprobs"];
    ASSERT_EQ(values.size(), 1'000U);
    EXPECT_TRUE(values[999][0].is_number());
    EXPECT_EQ(values, native[0]["meta_info"]["input_token_logprobs"]);
    EXPECT_EQ(choice["meta_info"]["input_top_logprobs"],
              native[0]["meta_info"]["input_top_logprobs"]);
  }
}

// Of several pieces, each written in a turn of its own.
TEST(LargeAnswers, every_choice_of_a_stream_has_the_log_probabilities_of_the_prompt) {
  SimServer server;
  json::Value completion = echo_of(3'000, 4, 5);
  const json::Value whole = server.post_json("/v1/completions", completion)["choices"];
  std::vector<json::Value> joined(4);
  for (const json::Value& event : server.post_stream("/v1/completions", completion)) {
    if (event.is_string()) continue;
    for (const json::Value& choice : event["choices"]) {
      json::Value& to = joined[choice["index"].get<size_t>()];
      for (const auto& [name, values] : choice["logprobs"].items()) {
        if (!to.contains(name)) to[name] = json::Value::array();
        for (const json::Value& value : values) to[name].push_back(value);
      }
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(joined[i], whole[i]["logprobs"]);
  const json::Value native = native_of(3'000, 4);
  const json::Value native_whole = server.post_json("/generate", native);
  std::vector<json::Value> last(4);
  for (const json::Value& event : server.post_stream("/generate", native))
    if (!event.is_string()) last[event["index"].get<size_t>()] = event["meta_info"];
  for (size_t i = 0; i < 4; ++i)
    for (const char* name : {"input_token_logprobs", "input_top_logprobs"})
      EXPECT_EQ(last[i][name], native_whole[i]["meta_info"][name]);
}

}  // namespace
}  // namespace fathom::serve
