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

}  // namespace
}  // namespace fathom::serve
