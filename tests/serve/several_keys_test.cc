// Holders of different API keys neither see, end nor hold up what the others do.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <string>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value one_token(json::Value more = json::Value::object()) {
  more["max_new_tokens"] = 1;
  return {{"text", "Hello"}, {"sampling_params", std::move(more)}};
}

// Takes a good part of a second of processor time to be refused.
json::Value costly_schema(int number) {
  json::Value schema = {{"type", "object"}, {"title", std::to_string(number)}};
  for (int i = 0; i < 60; ++i) {
    const auto name = [](int k) { return "p" + std::to_string(k % 60); };
    schema["properties"][name(i)] = {{"type", "null"}};
    schema["dependentRequired"][name(i)] = {name(i * 7 + 3), name(i * 11 + 1)};
  }
  return schema;
}

TEST(SeveralKeys, a_rid_is_one_s_own) {
  SimServer server({.step_delay = std::chrono::milliseconds(5), .keys = {"alice", "bob"}});
  json::Value body = {{"text", "Hello"},
                      {"rid", "1"},
                      {"sampling_params", {{"max_new_tokens", 200}, {"ignore_eos", true}}}};
  auto first = std::async(std::launch::async, [&] {
    return server.call_as("alice", "POST", "/generate", body).status;
  });
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_running > 0; }));
  EXPECT_EQ(server.call_as("alice", "POST", "/generate", body).status, 400);
  body["sampling_params"]["max_new_tokens"] = 2;
  EXPECT_EQ(server.call_as("bob", "POST", "/generate", body).status, 200);
  EXPECT_EQ(server.call_as("bob", "POST", "/abort_request", {{"rid", "1"}}).status, 401);
  EXPECT_EQ(server.call_as("root", "POST", "/abort_request", {{"rid", "1"}}).status, 200);
  EXPECT_EQ(first.get(), 200);
}

TEST(SeveralKeys, a_response_deleted_while_it_is_made_is_gone) {
  SimServer server({.keys = {"alice", "bob"}});
  ASSERT_EQ(server.call_as("root", "POST", "/pause_generation", {{"mode", "in_place"}}).status,
            200);
  std::mutex mutex;
  std::string bytes;
  std::promise<void> done;
  const auto id = [&]() -> std::string {
    const std::lock_guard lock(mutex);
    const size_t at = bytes.find("\"id\":\"resp_");
    return at == std::string::npos ? "" : bytes.substr(at + 6, bytes.find('"', at + 6) - at - 6);
  };
  server.client().send(
      server.request_as("alice", "POST", "/v1/responses",
                        {{"input", "Hello"}, {"max_output_tokens", 3}, {"stream", true}}),
      {.on_body =
           [&](std::string_view piece) {
             const std::lock_guard lock(mutex);
             bytes += piece;
           },
       .on_done = [&](const auto&) { done.set_value(); }});
  ASSERT_TRUE(server.eventually([&] { return !id().empty(); }));
  const std::string path = "/v1/responses/" + id();
  EXPECT_EQ(server.call_as("bob", "DELETE", path).status, 404);
  EXPECT_EQ(server.call_as("alice", "DELETE", path).status, 200);
  ASSERT_EQ(server.call_as("root", "POST", "/continue_generation", json::Value::object()).status,
            200);
  done.get_future().get();
  EXPECT_NE(bytes.find("event: response.incomplete"), std::string::npos) << bytes;
  EXPECT_EQ(server.call_as("alice", "GET", path).status, 404);
}

// Both kinds of bob's requests are answered while grammars of alice still wait.
TEST(SeveralKeys, grammars_of_one_hold_up_nobody_else) {
  constexpr int kNumCostly = 6;
  SimServer server({.keys = {"alice", "bob"}});
  std::atomic<int> num_refused{0};
  std::promise<void> all_refused;
  for (int i = 0; i < kNumCostly; ++i) {
    const json::Value body = one_token({{"json_schema", json::dump(costly_schema(i))}});
    server.client().send(server.request_as("alice", "POST", "/generate", body),
                         {.on_done = [&](const client::ClientResponse& response) {
                           EXPECT_EQ(response.status, 400) << response.body;
                           if (++num_refused == kNumCostly) all_refused.set_value();
                         }});
  }
  ASSERT_TRUE(server.eventually([&] { return num_refused > 0; }));
  EXPECT_EQ(server.call_as("bob", "POST", "/generate", one_token()).status, 200);
  EXPECT_EQ(server.call_as("bob", "POST", "/generate", one_token({{"regex", "[a-c]{3}"}})).status,
            200);
  EXPECT_LT(num_refused, kNumCostly);
  all_refused.get_future().get();
}

// Grammars of one body are compiled in turns with others', so bob has his long before alice has all of hers.
TEST(SeveralKeys, a_body_of_many_grammars_holds_up_nobody_else_s) {
  constexpr int kNumGrammars = 20;
  SimServer server({.keys = {"alice", "bob"}});
  json::Value body = {{"text", json::Value::array()}, {"sampling_params", json::Value::array()}};
  for (int i = 0; i < kNumGrammars; ++i) {
    json::Value schema = costly_schema(i);
    schema["dependentRequired"].erase("p0");  // the rest is accepted: 0.1 s under a sanitizer
    for (int k = 5; k < 60; ++k) schema["dependentRequired"].erase("p" + std::to_string(k));
    body["text"].push_back("Hello");
    body["sampling_params"].push_back({{"max_new_tokens", 1}, {"json_schema", json::dump(schema)}});
  }
  std::atomic<bool> is_answered{false};
  std::promise<client::ClientResponse> answer;
  server.client().send(server.request_as("alice", "POST", "/generate", body),
                       {.on_done = [&](const client::ClientResponse& response) {
                         is_answered = true;
                         answer.set_value(response);
                       }});
  for (const char* const pattern : {"[a-c]{3}", "[d-f]{3}", "[g-i]{3}"}) {
    EXPECT_EQ(server.call_as("bob", "POST", "/generate", one_token({{"regex", pattern}})).status,
              200);
  }
  EXPECT_FALSE(is_answered);
  const client::ClientResponse response = answer.get_future().get();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body).value().size(), static_cast<size_t>(kNumGrammars));
}

}  // namespace
}  // namespace fathom::serve
