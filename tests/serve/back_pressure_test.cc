// Readers that stop reading while their stream goes on: what waits for them is bounded and held together,
// nobody else notices, and nothing is lost or told twice when they go on. Who never does is cut off.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/http/raw_connection.h"
#include "tests/sanitized.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using http::tests::RawConnection;
using tests::SimServer;

// The smallest that the kernel takes: its own buffers then hide little of a reader that stops.
constexpr int kReceiveBufferBytes = 2048;
// What an answer queues before it holds back, and room for the event that crossed it.
constexpr int64_t kMaxQueuedBytes = 256 << 10;
constexpr std::chrono::milliseconds kReadTime{60'000};

json::Value endless(int max_new_tokens) {
  return {{"text", "Some apples"},
          {"sampling_params",
           {{"temperature", 0}, {"max_new_tokens", max_new_tokens}, {"ignore_eos", true}}}};
}

// Every token comes with twenty alternatives, so that few tokens make many bytes.
json::Value wide_completion(int max_tokens) {
  return {{"model", "demo"},  {"prompt", "Some apples"}, {"max_tokens", max_tokens},
          {"temperature", 0}, {"logprobs", 20},          {"ignore_eos", true}};
}

void send_stream(RawConnection& connection, const std::string& path, json::Value body) {
  body["stream"] = true;
  const std::string text = json::dump(body);
  ASSERT_TRUE(connection.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                              std::to_string(text.size()) + "\r\n\r\n" + text));
}

// Watches until the engine has nothing to do: the most bytes that were queued for clients.
int64_t most_queued_until_idle(SimServer& server) {
  int64_t most = 0;
  EXPECT_TRUE(server.eventually([&] { return server.engine().snapshot().num_output_tokens > 0; }));
  EXPECT_TRUE(server.eventually([&] {
    most = std::max(most, server.http().counters().backlog_bytes.load());
    return !server.engine().snapshot().has_work;
  }));
  return most;
}

TEST(BackPressure, a_reader_that_stops_gets_everything_in_order_when_it_goes_on) {
  constexpr int kTokens = 3000;
  SimServer server;
  RawConnection connection(server.http().port(), kReceiveBufferBytes);
  ASSERT_NO_FATAL_FAILURE(send_stream(connection, "/generate", endless(kTokens)));
  EXPECT_LE(most_queued_until_idle(server), kMaxQueuedBytes);
  EXPECT_TRUE(server.eventually([&] { return server.api().num_open_requests() == 0; }))
      << "the answer must not wait for its reader";

  const http::tests::RawAnswer answer = connection.read_answer(false, kReadTime);
  ASSERT_TRUE(answer.is_whole);
  const std::vector<json::Value> events = SimServer::events_of(answer.body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_LT(events.size(), size_t{kTokens} / 2) << "events were to be held together";
  EXPECT_EQ(events.back(), "[DONE]");
  size_t num_ids = 0;
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::Value& ids = events[i]["output_ids"];
    EXPECT_GT(ids.size(), num_ids) << "event " << i;
    num_ids = ids.size();
    EXPECT_TRUE(events[i]["text"].get<std::string>().starts_with(text)) << "event " << i;
    text = events[i]["text"];
    EXPECT_EQ(events[i]["meta_info"]["completion_tokens"], num_ids);
  }
  const json::Value whole = server.post_json("/generate", endless(kTokens));
  EXPECT_EQ(events[events.size() - 2]["output_ids"], whole["output_ids"]);
  EXPECT_EQ(text, whole["text"]);
}

TEST(BackPressure, deltas_that_were_held_back_join_to_the_whole_answer) {
  constexpr int kTokens = kIsSanitized ? 2500 : 6000;
  constexpr size_t kChoices = 4;
  SimServer server({.num_blocks = 512});
  json::Value body = wide_completion(kTokens);
  body["n"] = kChoices;
  RawConnection connection(server.http().port(), kReceiveBufferBytes);
  ASSERT_NO_FATAL_FAILURE(send_stream(connection, "/v1/completions", body));
  most_queued_until_idle(server);
  EXPECT_TRUE(server.eventually([&] { return server.api().num_open_requests() == 0; }));
  // More than a stream may have queued while it is written to: the end of the answer, in one piece.
  const int64_t num_queued = server.http().counters().backlog_bytes;
  EXPECT_GT(num_queued, int64_t{4} << 20 >> (kIsSanitized ? 8 : 0));

  const http::tests::RawAnswer answer = connection.read_answer(false, kReadTime);
  ASSERT_TRUE(answer.is_whole);
  const std::vector<json::Value> events = SimServer::events_of(answer.body);
  EXPECT_LT(events.size(), kChoices * kTokens / 2) << "events were to be held together";
  EXPECT_EQ(events.back(), "[DONE]");
  std::vector<std::string> texts(kChoices);
  std::vector<json::Value> tokens(kChoices, json::Value::array());
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::Value& choice = events[i]["choices"][0];
    const size_t index = choice["index"];
    texts.at(index) += choice["text"].get<std::string>();
    if (choice["logprobs"].is_null()) continue;
    for (const json::Value& token : choice["logprobs"]["tokens"]) tokens[index].push_back(token);
  }
  const json::Value whole = server.post_json("/v1/completions", body)["choices"];
  for (size_t i = 0; i < kChoices; ++i) {
    EXPECT_EQ(texts[i], whole[i]["text"]);
    EXPECT_EQ(tokens[i], whole[i]["logprobs"]["tokens"]);
    EXPECT_EQ(tokens[i].size(), size_t{kTokens});
  }
}

TEST(BackPressure, other_streams_of_the_same_thread_go_on) {
  // Slow enough that none of the long answers ends before the test does.
  SimServer server({.step_delay = std::chrono::milliseconds(1)});
  std::vector<std::unique_ptr<RawConnection>> stalled;
  for (int i = 0; i < 8; ++i) {
    stalled.push_back(std::make_unique<RawConnection>(server.http().port(), kReceiveBufferBytes));
    ASSERT_NO_FATAL_FAILURE(send_stream(*stalled.back(), "/generate", endless(12'000)));
  }
  ASSERT_TRUE(server.eventually([&] { return server.api().num_open_requests() == 8; }));
  ASSERT_TRUE(server.eventually([&] { return server.http().counters().backlog_bytes > 0; }));
  const json::Value whole = server.post_json("/generate", endless(50));
  for (int i = 0; i < 4; ++i) {  // both I/O threads get some
    const std::vector<json::Value> events = server.post_stream("/generate", endless(50));
    ASSERT_GE(events.size(), 2u);
    EXPECT_EQ(events[events.size() - 2]["output_ids"], whole["output_ids"]);
  }
  EXPECT_LE(server.http().counters().backlog_bytes.load(), 8 * kMaxQueuedBytes);
  stalled.clear();
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

TEST(BackPressure, a_reader_that_never_goes_on_is_cut_off_and_its_blocks_come_back) {
  constexpr int kTokens = 16'000;
  http::Timeouts timeouts;
  timeouts.write_stall = std::chrono::milliseconds(300);
  SimServer server({.step_delay = std::chrono::milliseconds(2), .timeouts = timeouts});
  RawConnection connection(server.http().port(), kReceiveBufferBytes);
  json::Value body = endless(kTokens);
  body["return_logprob"] = true;
  body["top_logprobs_num"] = 20;
  ASSERT_NO_FATAL_FAILURE(send_stream(connection, "/generate", body));
  ASSERT_TRUE(server.eventually([&] { return server.engine().snapshot().num_running == 1; }));
  const http::ServerCounters& counters = server.http().counters();
  EXPECT_TRUE(server.eventually([&] { return counters.client_disconnects == 1; }));
  EXPECT_EQ(server.http().counters().rejected[static_cast<size_t>(http::Rejection::kStalled)], 1);
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_LT(server.engine().snapshot().num_output_tokens, kTokens) << "it was to be cancelled";
  EXPECT_TRUE(server.eventually([&] { return counters.backlog_bytes == 0; }));
  EXPECT_TRUE(server.eventually([&] { return server.api().num_open_requests() == 0; }));
  EXPECT_EQ(server.post("/generate", endless(3)).status, 200);
}

TEST(BackPressure, a_reader_that_stops_gives_its_slot_to_others_and_gets_the_same_answer) {
  constexpr int kTokens = 6000;
  http::Timeouts timeouts;
  timeouts.behind = std::chrono::milliseconds(100);
  // One slot in all.
  SimServer server({.max_slots = 1,
                    .step_delay = std::chrono::milliseconds(1),
                    .timeouts = timeouts,
                    .ranks = {}});
  RawConnection connection(server.http().port(), kReceiveBufferBytes);
  ASSERT_NO_FATAL_FAILURE(send_stream(connection, "/generate", endless(kTokens)));
  ASSERT_TRUE(server.eventually([&] { return server.http().counters().backlog_bytes > 0; }));
  EXPECT_EQ(server.post("/generate", endless(3)).status, 200);
  const engine::EngineSnapshot look = server.engine().snapshot();
  EXPECT_EQ(look.num_retractions, 1);
  EXPECT_LT(look.num_output_tokens, kTokens) << "the stream was over, so nobody gave way";

  const http::tests::RawAnswer answer = connection.read_answer(false, kReadTime);
  ASSERT_TRUE(answer.is_whole);
  const std::vector<json::Value> events = SimServer::events_of(answer.body);
  const json::Value whole = server.post_json("/generate", endless(kTokens));
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[events.size() - 2]["output_ids"], whole["output_ids"]);
  EXPECT_EQ(events[events.size() - 2]["text"], whole["text"]);
}

}  // namespace
}  // namespace fathom::serve
