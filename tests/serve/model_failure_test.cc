// A server whose ranks no longer agree: nothing that runs or comes afterwards is answered with tokens, readiness says
// why and the engine's owner is told, once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/failpoint.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value long_request() {
  return {{"text", "How many apples are left?"},
          {"sampling_params", {{"max_new_tokens", 4000}, {"ignore_eos", true}}}};
}

TEST(ModelFailure, ends_every_request_and_readiness_and_is_told_once) {
  std::atomic<int> num_told = 0;
  SimServer server({.step_delay = std::chrono::milliseconds(2),
                    .ranks = {.ranks_of_lane = 2},
                    .on_failure = [&] { ++num_told; }});
  std::vector<std::promise<client::ClientResponse>> answers(4);
  for (auto& answer : answers)
    server.client().send(
        {.method = "POST", .url = server.url("/generate"), .body = json::dump(long_request())},
        {.on_done = [&](const auto& response) { answer.set_value(response); }});
  EXPECT_TRUE(server.eventually([&] { return server.engine().snapshot().num_running == 4; }));
  EXPECT_EQ(server.get_json("/readyz")["status"], "ready");
  arm_failpoint("sim_runner.slice", 1);  // of one rank
  for (auto& answer : answers) {
    const client::ClientResponse response = answer.get_future().get();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(json::parse(response.body).value()["error"]["code"], "model_failed") << response.body;
  }
  EXPECT_TRUE(server.eventually([&] { return num_told == 1; }));
  for (const char* path : {"/readyz", "/health", "/ping", "/health_generate"}) {
    const client::ClientResponse response = server.get(path);
    EXPECT_EQ(response.status, 503) << path;
    const json::Value body = json::parse(response.body).value();
    EXPECT_EQ(body["status"], "failed") << path;
    // Which rank meets the failpoint first is chance.
    EXPECT_THAT(
        body["why"].get<std::string>(),
        ::testing::ContainsRegex("rank 1 sampled (nothing \\(the logits .*\\), rank 0 token|token "
                                 "[0-9]+, rank 0 nothing \\(the logits )"))
        << path;
  }
  EXPECT_EQ(server.get("/livez").status, 200);
  EXPECT_EQ(server.post("/generate", long_request()).status, 503);
  server.api().begin_drain();
  EXPECT_EQ(json::parse(server.get("/readyz").body).value()["status"], "failed");
  EXPECT_EQ(num_told, 1);
  disarm_failpoints();
}

}  // namespace
}  // namespace fathom::serve
