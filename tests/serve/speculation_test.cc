// What a server whose engine speculates tells about it, and that its answers are those of one that does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value native_body(int max_new_tokens) {
  return {{"text", "How are you?"},
          {"sampling_params", {{"max_new_tokens", max_new_tokens}, {"temperature", 0}}}};
}

runner::SimDrafterConfig chain_of_three() {
  return {.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, .agreement = 0.8};
}

TEST(ServerSpeculation, tells_each_request_and_all_of_them_what_drafts_did) {
  SimServer server({.drafter = chain_of_three()});
  SimServer plain;
  const json::Value before = server.get_json("/server_info")["internal_states"][0];
  EXPECT_FALSE(before.contains("avg_spec_accept_length")) << "nothing was verified yet";
  int64_t num_steps = 0, num_verified = 0, num_accepted = 0;
  for (const int max_new_tokens : {60, 40}) {
    const json::Value answer = server.post_json("/generate", native_body(max_new_tokens));
    EXPECT_EQ(answer["output_ids"],
              plain.post_json("/generate", native_body(max_new_tokens))["output_ids"]);
    const json::Value& meta = answer["meta_info"];
    const auto steps = meta["spec_verify_ct"].get<int64_t>();
    const auto accepted = meta["spec_accept_token_num"].get<int64_t>();
    num_steps += steps;
    num_accepted += accepted;
    num_verified += meta["spec_draft_token_num"].get<int64_t>();
    EXPECT_GT(accepted, steps);  // 0.8 of the first, 0.64 of the second, 0.5 of the third
    EXPECT_NEAR(meta["spec_accept_length"].get<double>(),
                1 + static_cast<double>(accepted) / static_cast<double>(steps), 1e-5);
    EXPECT_NEAR(meta["spec_accept_rate"].get<double>(),
                static_cast<double>(accepted) / meta["spec_draft_token_num"].get<double>(), 1e-5);
    int64_t counted = 0;
    for (const json::Value& count : meta["spec_accept_histogram"]) counted += count.get<int64_t>();
    EXPECT_EQ(counted, steps);
  }
  ASSERT_TRUE(server.eventually([&] { return server.is_idle(); }));
  const json::Value state = server.get_json("/server_info")["internal_states"][0];
  EXPECT_NEAR(state["avg_spec_accept_length"].get<double>(),
              1 + static_cast<double>(num_accepted) / static_cast<double>(num_steps), 1e-9);
  EXPECT_EQ(state["spec_verify_ct"], num_steps);
  EXPECT_EQ(state["spec_num_drafts"], 3);
  EXPECT_EQ(server.metric("fathom:spec_verify_total"), static_cast<double>(num_steps));
  EXPECT_EQ(server.metric("vllm:spec_decode_num_draft_tokens_total"),
            static_cast<double>(num_verified));
  EXPECT_EQ(server.metric("fathom:spec_accepted_drafts_total"), static_cast<double>(num_accepted));
  EXPECT_GT(server.metric("sglang:spec_accept_length"), 1.5);
  EXPECT_GT(server.metric("sglang:spec_accept_rate"), 0.4);
  EXPECT_EQ(server.get_json("/stats")["current"]["max_drafts"], 3);
}

TEST(ServerSpeculation, without_it_nothing_is_told) {
  SimServer server;
  const json::Value answer = server.post_json("/generate", native_body(10));
  EXPECT_THAT(json::dump(answer), ::testing::Not(::testing::HasSubstr("spec_")));
  const json::Value state = server.get_json("/server_info")["internal_states"][0];
  EXPECT_THAT(json::dump(state), ::testing::Not(::testing::HasSubstr("spec_")));
  EXPECT_EQ(server.metric("fathom:spec_verify_total"), 0);
}

TEST(ServerSpeculation, usage_and_streams_of_chats_are_those_of_plain_decoding) {
  SimServer server({.drafter = chain_of_three()});
  SimServer plain;
  const json::Value body = {{"model", "default"},
                            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                            {"max_tokens", 50},
                            {"temperature", 0}};
  const json::Value answer = server.post_json("/v1/chat/completions", body);
  const json::Value expected = plain.post_json("/v1/chat/completions", body);
  EXPECT_EQ(answer["usage"], expected["usage"]);
  EXPECT_EQ(answer["choices"], expected["choices"]);
}

}  // namespace
}  // namespace fathom::serve
