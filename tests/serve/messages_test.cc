// /v1/messages through the whole server: answers, streams, counts and errors as Anthropic's clients expect them.

#include <gtest/gtest.h>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

constexpr const char* kMessages = "/v1/messages";

json::Value hello(int max_tokens) {
  return {{"model", "demo"},
          {"max_tokens", max_tokens},
          {"temperature", 0},
          {"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
}

json::Value with_tool(json::Value body) {
  body["tools"] = {{{"name", "get_weather"},
                    {"input_schema",
                     {{"type", "object"},
                      {"properties", {{"city", {{"type", "string"}, {"maxLength", 20}}}}},
                      {"required", {"city"}},
                      {"additionalProperties", false}}}}};
  body["tool_choice"] = {{"type", "any"}};
  return body;
}

// The data of a stream's events.
std::vector<json::Value> message_events(SimServer& server, json::Value body) {
  body["stream"] = true;
  const client::ClientResponse response = server.post(kMessages, body);
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<json::Value> events;
  for (size_t at = response.body.find("\ndata: "); at != std::string::npos;
       at = response.body.find("\ndata: ", at + 1)) {
    events.push_back(
        json::parse(response.body.substr(at + 7, response.body.find('\n', at + 7) - at - 7))
            .value());
  }
  return events;
}

TEST(Messages, answers_with_the_text_that_chat_has) {
  SimServer server;
  const json::Value message = server.post_json(kMessages, hello(12));
  EXPECT_TRUE(json::is_text(message["type"], "message"));
  EXPECT_TRUE(message["id"].get<std::string>().starts_with("msg_"));
  EXPECT_TRUE(json::is_text(message["stop_reason"], "max_tokens"));
  const json::Value chat = server.post_json("/v1/chat/completions", hello(12));
  EXPECT_EQ(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
  const json::Value& usage = message["usage"];
  EXPECT_EQ(usage["output_tokens"].get<int>(), 12);
  EXPECT_EQ(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>(),
            chat["usage"]["prompt_tokens"].get<int>());
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

TEST(Messages, a_stream_joins_to_the_whole_answer) {
  SimServer server;
  const json::Value whole = server.post_json(kMessages, hello(30));
  std::string text;
  const std::vector<json::Value> events = message_events(server, hello(30));
  ASSERT_GE(events.size(), 6U);
  for (const json::Value& event : events) {
    if (json::is_text(event["type"], "content_block_delta"))
      text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, whole["content"][0]["text"].get<std::string>());
  EXPECT_TRUE(json::is_text(events.front()["type"], "message_start"));
  EXPECT_TRUE(json::is_text(events.back()["type"], "message_stop"));
  EXPECT_EQ(events[events.size() - 2]["usage"]["output_tokens"].get<int>(), 30);
}

TEST(Messages, a_call_streams_and_fits_its_schema) {
  SimServer server;
  const json::Value whole = server.post_json(kMessages, with_tool(hello(200)));
  ASSERT_TRUE(json::is_text(whole["stop_reason"], "tool_use")) << json::dump(whole);
  const json::Value& call = whole["content"].back();
  EXPECT_TRUE(json::is_text(call["name"], "get_weather"));
  EXPECT_TRUE(call["input"]["city"].is_string());
  std::vector<std::string> inputs;
  for (const json::Value& event : message_events(server, with_tool(hello(200)))) {
    if (json::is_text(event["type"], "content_block_start")) inputs.emplace_back();
    if (json::is_text(event["type"], "content_block_delta"))
      inputs.back() += event["delta"]["partial_json"].get<std::string>();
  }
  ASSERT_EQ(inputs.size(), whole["content"].size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(json::parse(inputs[i]).value(), whole["content"][i]["input"]);
  }
}

TEST(Messages, counts_the_tokens_of_its_prompt_on_every_path) {
  SimServer server;
  const int num_tokens = server.post_json(kMessages, hello(1))["usage"]["input_tokens"].get<int>();
  for (const char* path : {"/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"}) {
    const json::Value count = server.post_json(path, hello(1));
    EXPECT_EQ(count["input_tokens"].get<int>(), num_tokens);
  }
  EXPECT_TRUE(
      json::is_text(server.post_json("/anthropic/v1/messages", hello(1))["role"], "assistant"));
}

TEST(Messages, errors_have_anthropics_shape) {
  SimServer server;
  const auto error_of = [&](const char* path, json::Value body, int status) {
    const client::ClientResponse response = server.post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    const json::Value error = json::parse(response.body).value();
    EXPECT_TRUE(json::is_text(error["type"], "error")) << response.body;
    return error["error"]["type"].get<std::string>();
  };
  json::Value no_length = hello(1), other_model = hello(1), bad_schema = hello(1);
  no_length.erase("max_tokens");
  other_model["model"] = "claude";
  bad_schema["output_config"] = {
      {"format", {{"type", "json_schema"}, {"schema", {{"type", "nothing"}}}}}};
  EXPECT_EQ(error_of(kMessages, no_length, 400), "invalid_request_error");
  EXPECT_EQ(error_of(kMessages, other_model, 404), "not_found_error");
  EXPECT_EQ(error_of(kMessages, bad_schema, 400), "invalid_request_error");
  EXPECT_EQ(error_of("/v1/messages/count_tokens", other_model, 404), "not_found_error");
}

TEST(Messages, say_so_while_the_model_loads) {
  SimServer server({.ready = false});
  const client::ClientResponse response = server.post(kMessages, hello(1));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body.substr(0, 50), R"({"type":"error","error":{"type":"overloaded_error")");
}

}  // namespace
}  // namespace fathom::serve
