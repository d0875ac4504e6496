// Requests of the shape that coding agents send to /v1/responses, through the whole server: many kinds of tools, hints
// of their own, and conversations that go on with the items of earlier answers.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

constexpr const char* kAgentPath = "/v1/responses";

json::Value parsed(const char* text) { return json::parse(text).value(); }

// What an agent sends with its first request, in our own words.
json::Value agent_request() {
  json::Value body = parsed(R"({
    "model": "demo", "instructions": "You are an agent that edits files.", "stream": true, "store": false,
    "input": [
      {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "The sandbox is off."}]},
      {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]}],
    "tools": [
      {"type": "function", "name": "run_command", "description": "Runs a command.", "strict": false,
       "parameters": {"type": "object", "properties": {"cmd": {"type": "string", "maxLength": 9}}, "required": ["cmd"],
                      "additionalProperties": false}},
      {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [
        {"type": "function", "name": "close", "strict": false,
         "parameters": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 9}},
                        "required": ["id"], "additionalProperties": false}}]},
      {"type": "custom", "name": "note", "description": "Keeps a text."},
      {"type": "custom", "name": "digits",
       "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]{2,4}"}},
      {"type": "custom", "name": "lines",
       "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE LINE\nLINE: /[a-c]{1,3}\\n/"}},
      {"type": "web_search", "external_web_access": true}],
    "tool_choice": "auto", "parallel_tool_calls": true, "reasoning": {"summary": "auto"},
    "include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"}, "service_tier": "priority",
    "truncation": "auto", "prompt_cache_key": "session-1", "prompt_cache_retention": "24h",
    "client_metadata": {"turn": "1", "window": "{\"a\":1}"}})");
  body["max_output_tokens"] = 200;
  return body;
}

// The response that a stream ends with; its events build the same items.
json::Value response_of(SimServer& server, const json::Value& body) {
  const client::ClientResponse answer = server.post(kAgentPath, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  std::vector<std::string> names;
  json::Value last, items = json::Value::array();
  for (size_t at = answer.body.find("\ndata: "); at != std::string::npos;
       at = answer.body.find("\ndata: ", at + 1)) {
    last = json::parse(answer.body.substr(at + 7, answer.body.find('\n', at + 7) - at - 7)).value();
    EXPECT_EQ(last["sequence_number"].get<size_t>(), names.size());
    names.push_back(last["type"].get<std::string>());
    if (names.back() == "response.output_item.added") {
      EXPECT_EQ(last["output_index"].get<size_t>(), items.size());
      items.push_back(last["item"]);
    } else if (names.back() == "response.function_call_arguments.delta") {
      items.back()["arguments"] =
          items.back()["arguments"].get<std::string>() + last["delta"].get<std::string>();
    } else if (names.back() == "response.custom_tool_call_input.delta") {
      items.back()["input"] =
          items.back()["input"].get<std::string>() + last["delta"].get<std::string>();
    } else if (names.back() == "response.output_item.done") {
      for (const char* key : {"id", "call_id", "name", "namespace", "arguments", "input"}) {
        EXPECT_EQ(items.back().value(key, ""), last["item"].value(key, "")) << key;
      }
    }
  }
  EXPECT_EQ(names.at(0), "response.created");
  EXPECT_EQ(names.at(1), "response.in_progress");
  EXPECT_TRUE(names.back() == "response.completed" || names.back() == "response.incomplete");
  EXPECT_EQ(last["response"]["output"].size(), items.size());
  return last["response"];
}

json::Value result_of(const json::Value& call, const char* output) {
  const bool is_custom = json::is_text(call["type"], "custom_tool_call");
  json::Value result = {{"type", is_custom ? "custom_tool_call_output" : "function_call_output"},
                        {"output", output}};
  result["call_id"] = call["call_id"];
  return result;
}

TEST(AgentRequests, the_first_one_is_answered) {
  SimServer server;
  const json::Value response = response_of(server, agent_request());
  EXPECT_TRUE(json::is_text(response["truncation"], "auto"));
  EXPECT_TRUE(json::is_text(response["text"]["verbosity"], "low"));
  EXPECT_TRUE(response["tools"][1]["tools"][0].contains("strict"));
}

TEST(AgentRequests, a_conversation_goes_on_with_every_kind_of_call) {
  SimServer server;
  json::Value body = agent_request();
  const std::vector<std::pair<const char*, const char*>> choices = {
      {R"({"type": "function", "name": "run_command"})", "function_call"},
      {R"({"type": "function", "name": "close", "namespace": "agents"})", "function_call"},
      {R"({"type": "custom", "name": "digits"})", "custom_tool_call"},
      {R"({"type": "custom", "name": "lines"})", "custom_tool_call"}};
  int prompt_tokens = 0;
  for (const auto& [choice, type] : choices) {
    body["tool_choice"] = parsed(choice);
    const json::Value response = response_of(server, body);
    EXPECT_GT(response["usage"]["input_tokens"].get<int>(), prompt_tokens);
    prompt_tokens = response["usage"]["input_tokens"].get<int>();
    ASSERT_EQ(response["output"].size(), 1U) << json::dump(response);
    const json::Value& call = response["output"][0];
    EXPECT_TRUE(json::is_text(call["type"], type));
    EXPECT_EQ(call["name"], body["tool_choice"]["name"]);
    EXPECT_EQ(call.value("namespace", ""), body["tool_choice"].value("namespace", ""));
    if (call.contains("arguments")) {
      EXPECT_TRUE(json::parse(call["arguments"].get<std::string>()).value().is_object());
    } else {
      const auto input = call["input"].get<std::string>();
      const bool is_lines = json::is_text(call["name"], "lines");
      EXPECT_TRUE(input.size() >= 2 && input.size() <= (is_lines ? 8 : 4)) << input;
      EXPECT_EQ(input.find_first_not_of(is_lines ? "abc\n" : "0123456789"), std::string::npos);
      EXPECT_EQ(std::count(input.begin(), input.end(), '\n'), is_lines ? 2 : 0) << input;
    }
    body["input"].push_back(call);
    body["input"].push_back(result_of(call, "done"));
  }
  body["tool_choice"] = "auto";
  EXPECT_GT(response_of(server, body)["usage"]["input_tokens"].get<int>(), prompt_tokens);
}

TEST(AgentRequests, reasoning_comes_back_as_it_went_out) {
  SimServer server;
  json::Value body = agent_request();
  body["reasoning"] = {{"effort", "high"}};
  const json::Value response = response_of(server, body);
  ASSERT_TRUE(json::is_text(response["output"][0]["type"], "reasoning"));
  EXPECT_TRUE(response["output"][0]["encrypted_content"].is_string());
  for (const json::Value& item : response["output"]) {
    if (json::is_text(item["type"], "reasoning")) body["input"].push_back(item);
  }
  json::Value more = {{"role", "user"}, {"content", "Go on."}};
  body["input"].push_back(more);
  EXPECT_GT(response_of(server, body)["usage"]["input_tokens"].get<int>(),
            response["usage"]["input_tokens"].get<int>());
}

TEST(AgentRequests, a_reference_stands_for_the_item_of_a_stored_response) {
  SimServer server;
  json::Value body = {{"input", "Hello"}, {"temperature", 0}, {"max_output_tokens", 5}};
  const json::Value first = server.post_json(kAgentPath, body);
  const auto ask = [&](const json::Value& item) {
    body["input"] = json::Value::array();
    body["input"].push_back({{"role", "user"}, {"content", "Hello"}});
    body["input"].push_back(item);
    body["input"].push_back({{"role", "user"}, {"content", "And?"}});
    return server.post(kAgentPath, body);
  };
  json::Value reference = {{"type", "item_reference"}};
  reference["id"] = first["output"][0]["id"];
  const json::Value by_id = json::parse(ask(reference).body).value();
  const json::Value by_item = json::parse(ask(first["output"][0]).body).value();
  EXPECT_EQ(by_id["usage"], by_item["usage"]);
  EXPECT_EQ(by_id["output"][0]["content"], by_item["output"][0]["content"]);
  reference["id"] = "msg_none";
  const client::ClientResponse gone = ask(reference);
  EXPECT_EQ(gone.status, 404);
  EXPECT_NE(gone.body.find("item_not_found"), std::string::npos) << gone.body;
}

TEST(AgentRequests, log_probabilities_are_those_of_chat) {
  SimServer server;
  json::Value body = {{"input", "Hello"}, {"temperature", 0}, {"max_output_tokens", 8}};
  body["include"] = json::Value::array({"message.output_text.logprobs"});
  body["top_logprobs"] = 2;
  const json::Value response = server.post_json(kAgentPath, body);
  const json::Value chat = server.post_json(
      "/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                               {"temperature", 0},
                               {"max_tokens", 8},
                               {"logprobs", true},
                               {"top_logprobs", 2}});
  const json::Value& part = response["output"][0]["content"][0];
  EXPECT_EQ(part["text"], chat["choices"][0]["message"]["content"]);
  EXPECT_EQ(part["logprobs"], chat["choices"][0]["logprobs"]["content"]);
  EXPECT_EQ(response["top_logprobs"].get<int>(), 2);
  EXPECT_TRUE(chat["choices"][0]["logprobs"]["refusal"].is_null());
}

}  // namespace
}  // namespace fathom::serve
