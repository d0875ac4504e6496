// /v1/responses through the whole server: answers and streams as OpenAI's clients expect them, conversations that go on
// by id, and a store from which responses can be deleted.

#include <gtest/gtest.h>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

constexpr const char* kResponses = "/v1/responses";

json::Value ask(const std::string& input, int max_tokens) {
  return {
      {"model", "demo"}, {"input", input}, {"temperature", 0}, {"max_output_tokens", max_tokens}};
}

std::string text_of(const json::Value& response) {
  std::string text;
  for (const json::Value& item : response["output"]) {
    if (json::is_text(item["type"], "message"))
      text += item["content"][0]["text"].get<std::string>();
  }
  return text;
}

TEST(Responses, answers_with_the_text_that_chat_has) {
  SimServer server;
  const json::Value response = server.post_json(kResponses, ask("Hello", 12));
  EXPECT_TRUE(response["id"].get<std::string>().starts_with("resp_"));
  EXPECT_TRUE(json::is_text(response["object"], "response"));
  EXPECT_TRUE(json::is_text(response["status"], "incomplete"));
  EXPECT_TRUE(json::is_text(response["incomplete_details"]["reason"], "max_output_tokens"));
  const json::Value chat = server.post_json(
      "/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                               {"temperature", 0},
                               {"max_tokens", 12}});
  EXPECT_EQ(text_of(response), chat["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_EQ(response["usage"]["output_tokens"].get<int>(), 12);
  EXPECT_EQ(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
}

TEST(Responses, a_stream_ends_with_the_response_that_is_stored) {
  SimServer server;
  json::Value body = ask("Hello", 30);
  body["stream"] = true;
  const client::ClientResponse answer = server.post(kResponses, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  std::string text;
  json::Value last;
  int num_events = 0;
  for (size_t at = answer.body.find("\ndata: "); at != std::string::npos;
       at = answer.body.find("\ndata: ", at + 1)) {
    last = json::parse(answer.body.substr(at + 7, answer.body.find('\n', at + 7) - at - 7)).value();
    EXPECT_EQ(last["sequence_number"].get<int>(), num_events++);
    if (json::is_text(last["type"], "response.output_text.delta"))
      text += last["delta"].get<std::string>();
  }
  EXPECT_TRUE(json::is_text(last["type"], "response.incomplete"));
  EXPECT_EQ(text, text_of(last["response"]));
  const auto id = last["response"]["id"].get<std::string>();
  EXPECT_EQ(server.get_json("/v1/responses/" + id), last["response"]);
}

TEST(Responses, a_conversation_goes_on_by_the_id_of_its_last_response) {
  SimServer server;
  const json::Value first = server.post_json(kResponses, ask("Hello", 9));
  json::Value next = ask("And then?", 9);
  next["previous_response_id"] = first["id"];
  const json::Value by_id = server.post_json(kResponses, next);
  json::Value whole = ask("", 9);
  whole["input"] = json::Value::array();
  whole["input"].push_back({{"role", "user"}, {"content", "Hello"}});
  for (const json::Value& item : first["output"]) whole["input"].push_back(item);
  whole["input"].push_back({{"role", "user"}, {"content", "And then?"}});
  const json::Value by_items = server.post_json(kResponses, whole);
  EXPECT_EQ(by_id["usage"]["input_tokens"], by_items["usage"]["input_tokens"]);
  EXPECT_EQ(text_of(by_id), text_of(by_items));
  EXPECT_EQ(by_id["previous_response_id"], first["id"]);
}

TEST(Responses, what_was_deleted_or_not_stored_is_gone) {
  SimServer server;
  const auto id = server.post_json(kResponses, ask("Hello", 1))["id"].get<std::string>();
  EXPECT_EQ(server.metric("fathom:stored_responses"), 1);
  const client::ClientResponse deleted =
      server.client().call({.method = "DELETE", .url = server.url("/v1/responses/" + id)});
  EXPECT_EQ(deleted.status, 200) << deleted.body;
  EXPECT_EQ(server.get("/v1/responses/" + id).status, 404);
  EXPECT_EQ(server.metric("fathom:stored_responses"), 0);
  json::Value unstored = ask("Hello", 1);
  unstored["store"] = false;
  const auto other = server.post_json(kResponses, unstored)["id"].get<std::string>();
  EXPECT_EQ(server.get("/v1/responses/" + other).status, 404);
  json::Value next = ask("And then?", 1);
  next["previous_response_id"] = other;
  const client::ClientResponse refusal = server.post(kResponses, next);
  EXPECT_EQ(refusal.status, 404);
  EXPECT_NE(refusal.body.find(other), std::string::npos) << refusal.body;
  EXPECT_EQ(server.metric("fathom:responses_stored_total"), 1);
}

TEST(Responses, a_call_goes_on_with_its_result) {
  SimServer server;
  json::Value body = ask("The weather in Oslo?", 200);
  json::Value tool = {{"type", "function"}, {"name", "get_weather"}};
  tool["parameters"] = {{"type", "object"},
                        {"properties", {{"city", {{"type", "string"}, {"maxLength", 20}}}}},
                        {"required", {"city"}},
                        {"additionalProperties", false}};
  body["tools"] = json::Value::array({tool});
  body["tool_choice"] = "required";
  body["parallel_tool_calls"] = false;
  const json::Value called = server.post_json(kResponses, body);
  ASSERT_EQ(called["output"].size(), 1U) << json::dump(called);
  const json::Value& call = called["output"][0];
  EXPECT_TRUE(json::is_text(call["type"], "function_call"));
  EXPECT_TRUE(json::parse(call["arguments"].get<std::string>()).value()["city"].is_string());
  json::Value next = ask("", 5);
  json::Value result = {{"type", "function_call_output"}, {"output", "rain"}};
  result["call_id"] = call["call_id"];
  next["input"] = json::Value::array({result});
  next["previous_response_id"] = called["id"];
  EXPECT_EQ(server.post_json(kResponses, next)["usage"]["output_tokens"].get<int>(), 5);
}

}  // namespace
}  // namespace fathom::serve
