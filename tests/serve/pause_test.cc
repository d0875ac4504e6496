// /pause_generation and /continue_generation over HTTP.

#include <gtest/gtest.h>

#include <future>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value stream_to_pause(int num_tokens) {
  return {{"text", "How many apples are left?"},
          {"stream", true},
          {"sampling_params",
           {{"temperature", 0}, {"max_new_tokens", num_tokens}, {"ignore_eos", true}}}};
}

json::Value mode(const char* name) { return {{"mode", name}}; }

// The text and the reason of a stream's last event.
std::pair<json::Value, json::Value> end_of(const std::string& body) {
  const std::vector<json::Value> events = SimServer::events_of(body);
  EXPECT_GE(events.size(), 2U) << body;
  if (events.size() < 2) return {};
  const json::Value& last = events[events.size() - 2];
  return {last["text"], last["meta_info"]["finish_reason"]["type"]};
}

void expect_paused(SimServer& server) {
  const int64_t num_tokens = server.engine().snapshot().num_output_tokens;
  for (const char* path : {"/livez", "/readyz", "/health", "/ping", "/health_generate"}) {
    EXPECT_EQ(server.get(path).status, 200) << path;
  }
  EXPECT_EQ(server.get_json("/readyz")["status"], "paused");
  EXPECT_EQ(server.get_json("/server_info")["internal_states"][0]["is_paused"], true);
  EXPECT_EQ(server.get_json("/load")["server_load"], 1);
  EXPECT_EQ(server.metric("fathom:paused"), 1);
  EXPECT_EQ(server.engine().snapshot().num_output_tokens, num_tokens);
}

// False: the stream had ended before the pause came.
bool pause_within(const char* mode_name, const tests::SimRanks& ranks, int num_tokens) {
  SimServer server({.step_delay = std::chrono::milliseconds(2), .ranks = ranks});
  const json::Value body = stream_to_pause(num_tokens);
  std::promise<std::string> paused_body;
  server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(body)},
      {.on_done = [&](const auto& response) { paused_body.set_value(response.body); }});
  EXPECT_TRUE(server.eventually([&] { return server.engine().snapshot().num_output_tokens > 2; }));
  EXPECT_EQ(server.post_json("/pause_generation", mode(mode_name)),
            (json::Value{{"message", "Generation paused successfully."}, {"status", "ok"}}));
  const bool is_within = server.engine().snapshot().has_work;
  if (is_within) expect_paused(server);
  EXPECT_EQ(server.post_json("/continue_generation", json::Value::object()),
            (json::Value{{"message", "Generation continued successfully."}, {"status", "ok"}}));
  EXPECT_EQ(server.get_json("/readyz")["status"], "ready");
  EXPECT_EQ(server.metric("fathom:paused"), 0);
  const auto end = end_of(paused_body.get_future().get());
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  if (is_within) {
    EXPECT_EQ(end, end_of(server.post("/generate", body).body));
  }
  return is_within;
}

class PauseModes : public ::testing::TestWithParam<std::tuple<const char*, tests::SimRanks>> {};

TEST_P(PauseModes, hold_a_stream_that_goes_on_exactly) {
  // On a busy machine a stream may be at its end before the pause: a longer one is not.
  for (const int num_tokens : {400, 2000, 10'000}) {
    const auto& [mode_name, ranks] = GetParam();
    if (pause_within(mode_name, ranks, num_tokens)) return;
  }
  FAIL() << "every stream had ended";
}

std::string pause_name(const ::testing::TestParamInfo<PauseModes::ParamType>& info) {
  const auto& [mode_name, ranks] = info.param;
  return std::string(mode_name) + "_" + std::to_string(ranks.num_lanes) + "x" +
         std::to_string(ranks.ranks_of_lane);
}

INSTANTIATE_TEST_SUITE_P(All, PauseModes,
                         ::testing::Combine(::testing::Values("in_place", "retract"),
                                            ::testing::Values(tests::SimRanks{},
                                                              tests::SimRanks{.num_lanes = 2,
                                                                              .ranks_of_lane = 2})),
                         pause_name);

TEST(Pause, aborts_unless_told_otherwise_and_new_requests_wait) {
  SimServer server({.step_delay = std::chrono::milliseconds(2)});
  const json::Value endless = stream_to_pause(10'000);
  std::promise<std::string> aborted;
  server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(endless)},
      {.on_done = [&](const auto& response) { aborted.set_value(response.body); }});
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_output_tokens > 0; }));
  EXPECT_EQ(server.client().call({.method = "POST", .url = server.url("/pause_generation")}).status,
            200);
  EXPECT_EQ(end_of(aborted.get_future().get()).second, "abort");
  EXPECT_EQ(server.post("/flush_cache", {}).status, 200);

  std::promise<std::string> waited;
  server.client().send(
      {.method = "POST", .url = server.url("/generate"), .body = json::dump(stream_to_pause(40))},
      {.on_done = [&](const auto& response) { waited.set_value(response.body); }});
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_received == 2; }));
  EXPECT_EQ(server.get_json("/readyz")["waiting"], 1);
  EXPECT_EQ(server.post("/continue_generation", {{"torch_empty_cache", true}}).status, 200);
  EXPECT_EQ(end_of(waited.get_future().get()).second, "length");
}

TEST(Pause, refuses_other_modes_and_fields_by_name) {
  SimServer server;
  const auto param_of = [&](const std::string& path, const json::Value& body) {
    const client::ClientResponse response = server.post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return json::parse(response.body).value()["error"]["param"];
  };
  EXPECT_EQ(param_of("/pause_generation", mode("keep")), "mode");
  EXPECT_EQ(param_of("/pause_generation", {{"mode", 1}}), "mode");
  EXPECT_EQ(param_of("/pause_generation", {{"modus", "abort"}}), "modus");
  EXPECT_EQ(param_of("/continue_generation", {{"mode", "abort"}}), "mode");
  EXPECT_EQ(server.get_json("/readyz")["status"], "ready");
  EXPECT_EQ(server.get("/pause_generation").status, 405);
}

TEST(Pause, is_refused_until_the_model_is_there) {
  SimServer server({.ready = false});
  EXPECT_EQ(server.post("/pause_generation", mode("in_place")).status, 503);
  EXPECT_EQ(server.post("/continue_generation", json::Value::object()).status, 503);
  server.make_ready();
}

}  // namespace
}  // namespace fathom::serve
