// What a stream shows before the first token is there: clients watch for events, and a prompt may compute for minutes.
// Generation is paused while the first events are read, so they cannot have come with a token.

#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value question() {
  return {{"model", "demo"}, {"temperature", 0}, {"max_tokens", 5}, {"stream", true}};
}

json::Value chat_question() {
  json::Value body = question();
  body["messages"] = {{{"role", "user"}, {"content", "Hello"}}};
  return body;
}

struct FirstEvents {
  std::string name, path;
  json::Value body;
  std::string begin;  // what the first event begins with
  std::vector<std::string> shown;
  std::string unique;   // comes once in the whole stream
  std::string silence;  // comes while nothing else does
};

std::vector<FirstEvents> first_events() {
  json::Value two = chat_question();
  two["n"] = 2;
  json::Value response = question();
  response.erase("max_tokens");
  response["max_output_tokens"] = 5;
  response["input"] = "Hello";
  return {
      {"messages",
       "/v1/messages",
       chat_question(),
       "event: message_start\n",
       {R"("output_tokens":0)", "event: ping\n"},
       "event: message_start\n",
       "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"},
      {"responses",
       "/v1/responses",
       response,
       "event: response.created\n",
       {"event: response.in_progress\n", R"("sequence_number":1)"},
       "event: response.created\n",
       "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n"},
      {"chat",
       "/v1/chat/completions",
       chat_question(),
       "data: {",
       {R"("role":"assistant","content":"")"},
       R"("role":"assistant")",
       ": keep-alive\n\n: keep-alive\n\n"},
      {"chat_of_two",
       "/v1/chat/completions",
       two,
       "data: {",
       {R"({"index":0,"delta":{"reasoning_content":null,"role":"assistant")",
        R"({"index":1,"delta":{"reasoning_content":null,"role":"assistant")"},
       R"({"index":1,"delta":{"reasoning_content":null,"role":"assistant")",
       ": keep-alive\n\n: keep-alive\n\n"},
  };
}

// A stream as it arrives.
struct Arriving {
  std::mutex mutex;
  std::string bytes;
  std::promise<void> done;

  bool has(const std::string& text) {
    const std::lock_guard lock(mutex);
    return bytes.find(text) != std::string::npos;
  }
  std::string all() {
    const std::lock_guard lock(mutex);
    return bytes;
  }
};

class FirstEventsOf : public ::testing::TestWithParam<FirstEvents> {};

TEST_P(FirstEventsOf, come_before_a_token_is_made) {
  const FirstEvents& form = GetParam();
  http::Timeouts timeouts;
  timeouts.stream_comment = std::chrono::milliseconds(50);
  SimServer server({.timeouts = timeouts});
  ASSERT_EQ(server.post("/pause_generation", {{"mode", "in_place"}}).status, 200);
  Arriving stream;
  server.client().send(
      {.method = "POST", .url = server.url(form.path), .body = json::dump(form.body)},
      {.on_body =
           [&](std::string_view bytes) {
             const std::lock_guard lock(stream.mutex);
             stream.bytes += bytes;
           },
       .on_done = [&](const auto&) { stream.done.set_value(); }});
  for (const std::string& text : form.shown) {
    EXPECT_TRUE(server.eventually([&] { return stream.has(text); })) << text << stream.all();
  }
  EXPECT_EQ(stream.all().find(form.begin), 0U) << stream.all();
  EXPECT_TRUE(server.eventually([&] { return stream.has(form.silence); })) << stream.all();
  EXPECT_EQ(server.engine().snapshot().num_output_tokens, 0);
  ASSERT_EQ(server.post("/continue_generation", json::Value::object()).status, 200);
  stream.done.get_future().get();
  const std::string bytes = stream.all();
  const size_t at = bytes.find(form.unique);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(bytes.find(form.unique, at + 1), std::string::npos) << bytes;
  EXPECT_GT(server.engine().snapshot().num_output_tokens, 0);
}

// Nothing has been written then, so the status can still say it.
TEST_P(FirstEventsOf, do_not_come_when_the_queue_is_full) {
  const FirstEvents& form = GetParam();
  SimServer server({.max_queued_requests = 0});
  ASSERT_EQ(server.post("/pause_generation", {{"mode", "in_place"}}).status, 200);
  client::ClientResponse last;
  EXPECT_TRUE(server.eventually([&] {
    if (last.status == 429) return true;
    std::promise<client::ClientResponse> head;
    server.client().send(
        {.method = "POST", .url = server.url(form.path), .body = json::dump(form.body)},
        {.on_head = [&](const client::ClientResponse& response) { head.set_value(response); }});
    last = head.get_future().get();
    return last.status == 429;
  })) << last.status;
  ASSERT_EQ(server.post("/pause_generation", {{"mode", "abort"}}).status, 200);
}

INSTANTIATE_TEST_SUITE_P(Streams, FirstEventsOf, ::testing::ValuesIn(first_events()),
                         [](const auto& info) { return info.param.name; });

// Counts that were not known at the beginning come with the last event.
TEST(FirstEvents, leave_the_cached_tokens_to_the_end) {
  SimServer server;
  json::Value body = chat_question();
  body["messages"][0]["content"] = std::string(2000, 'a') + " and so on";
  const auto usages = [&] {
    std::vector<json::Value> found;
    const std::string bytes = server.post("/v1/messages", body).body;
    for (size_t at = bytes.find("\ndata: "); at != std::string::npos;
         at = bytes.find("\ndata: ", at + 1)) {
      const json::Value event =
          json::parse(bytes.substr(at + 7, bytes.find('\n', at + 7) - at - 7)).value();
      if (event.contains("usage")) found.push_back(event["usage"]);
      if (event.contains("message")) found.push_back(event["message"]["usage"]);
    }
    return found;
  };
  const std::vector<json::Value> first = usages(), again = usages();
  ASSERT_EQ(first.size(), 2U);
  ASSERT_EQ(again.size(), 2U);
  const int prompt = first[0]["input_tokens"].get<int>();
  EXPECT_EQ(first[1]["input_tokens"].get<int>(), prompt);
  EXPECT_EQ(again[0]["input_tokens"].get<int>(), prompt);
  const int cached = again[1]["cache_read_input_tokens"].get<int>();
  EXPECT_GT(cached, 0);
  EXPECT_EQ(again[1]["input_tokens"].get<int>() + cached, prompt);
}

}  // namespace
}  // namespace fathom::serve
