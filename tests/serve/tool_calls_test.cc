// Tool calls through the whole server: what a stream shows of a call while it is made, what is left of one that
// was cut, and which calls a request allows. The simulation writes any text that the constraint allows.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

constexpr const char* kChat = "/v1/chat/completions";

json::Value tool(const std::string& name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"city", {{"type", "string"}, {"maxLength", 20}}},
                {"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}}},
              {"required", {"city", "days"}},
              {"additionalProperties", false}}}}}};
}

json::Value chat_with_tools(int max_tokens, int seed) {
  return {{"messages", {{{"role", "user"}, {"content", "The weather in Oslo?"}}}},
          {"tools", {tool("get_weather"), tool("get_tides"), tool("get_news")}},
          {"tool_choice", "required"},
          {"max_tokens", max_tokens},
          {"temperature", 1},
          {"seed", seed}};
}

json::Value allowed_tools(const char* mode, const std::vector<std::string>& names) {
  json::Value tools = json::Value::array();
  for (const std::string& name : names) {
    tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
  }
  return {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", tools}}}};
}

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

// What a client puts together of an answer.
struct Answer {
  std::string content, finish;
  std::vector<Call> calls;
  size_t num_argument_deltas = 0;
};

void take_text(const json::Value& holder, const char* key, std::string& text) {
  if (holder.contains(key) && holder[key].is_string()) text += holder[key].get<std::string>();
}

Answer whole_answer(SimServer& server, const json::Value& body) {
  const json::Value choice = server.post_json(kChat, body)["choices"][0];
  Answer answer;
  take_text(choice, "finish_reason", answer.finish);
  take_text(choice["message"], "content", answer.content);
  for (const json::Value& call : choice["message"].value("tool_calls", json::Value::array())) {
    EXPECT_TRUE(json::is_text(call["type"], "function"));
    EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
    answer.calls.push_back({.name = call["function"]["name"].get<std::string>(),
                            .arguments = call["function"]["arguments"].get<std::string>()});
  }
  return answer;
}

// As OpenAI's clients do it: the first delta of an index opens a call, later ones add to its arguments.
void take_delta(const json::Value& delta, Answer& answer) {
  const size_t index = delta["index"].get<size_t>();
  const json::Value& function = delta["function"];
  if (index == answer.calls.size()) {
    EXPECT_TRUE(delta["id"].get<std::string>().starts_with("call_"));
    EXPECT_TRUE(json::is_text(delta["type"], "function"));
    EXPECT_TRUE(json::is_text(function["arguments"], ""));
    answer.calls.push_back({.name = function["name"].get<std::string>(), .arguments = ""});
    return;
  }
  ASSERT_EQ(index + 1, answer.calls.size());
  EXPECT_FALSE(delta.contains("id") || delta.contains("type") || function.contains("name"));
  EXPECT_FALSE(function["arguments"].get<std::string>().empty());
  take_text(function, "arguments", answer.calls.back().arguments);
  ++answer.num_argument_deltas;
}

Answer streamed_answer(SimServer& server, const json::Value& body) {
  Answer answer;
  for (const json::Value& event : server.post_stream(kChat, body)) {
    if (event.is_string()) continue;
    const json::Value& choice = event["choices"][0];
    take_text(choice, "finish_reason", answer.finish);
    take_text(choice["delta"], "content", answer.content);
    if (!choice["delta"].contains("tool_calls")) continue;
    for (const json::Value& delta : choice["delta"]["tool_calls"]) take_delta(delta, answer);
  }
  return answer;
}

// The answer, the same whole and streamed.
Answer answer_of(SimServer& server, const json::Value& body) {
  const Answer whole = whole_answer(server, body);
  Answer streamed = streamed_answer(server, body);
  EXPECT_EQ(streamed.content, whole.content);
  EXPECT_EQ(streamed.finish, whole.finish);
  EXPECT_EQ(streamed.calls, whole.calls);
  EXPECT_EQ(streamed.content.find("<｜"), std::string::npos) << streamed.content;
  return streamed;
}

// A cut within a character shows as U+FFFD at its end.
std::string without_half_character(std::string text) {
  while (text.ends_with("\xef\xbf\xbd")) text.erase(text.size() - 3);
  return text;
}

bool is_json(const std::string& text) { return json::parse(text).has_value(); }

TEST(ToolCalls, a_call_that_is_cut_anywhere_is_the_beginning_of_the_whole_one) {
  SimServer server;
  for (const int seed : {1, 2, 3}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    json::Value body = chat_with_tools(300, seed);
    body["parallel_tool_calls"] = false;
    const Answer whole = answer_of(server, body);
    ASSERT_EQ(whole.finish, "tool_calls");
    ASSERT_EQ(whole.calls.size(), 1U);
    EXPECT_GT(whole.num_argument_deltas, 3U) << "arguments come as they are made";
    ASSERT_TRUE(is_json(whole.calls[0].arguments)) << whole.calls[0].arguments;
    std::set<std::string> seen;
    Answer cut;
    for (int max_tokens = 1; cut.finish != "tool_calls"; ++max_tokens) {
      ASSERT_LE(max_tokens, 300);
      body["max_tokens"] = max_tokens;
      cut = answer_of(server, body);
      EXPECT_EQ(cut.content, "");
      if (cut.finish == "tool_calls") break;
      EXPECT_EQ(cut.finish, "length");
      if (cut.calls.empty()) continue;
      ASSERT_EQ(cut.calls.size(), 1U);
      EXPECT_EQ(cut.calls[0].name, whole.calls[0].name);
      EXPECT_TRUE(
          whole.calls[0].arguments.starts_with(without_half_character(cut.calls[0].arguments)))
          << cut.calls[0].arguments;
      seen.insert(cut.calls[0].arguments);
    }
    EXPECT_EQ(cut.calls, whole.calls);
    EXPECT_GT(seen.size(), 3U);
  }
}

TEST(ToolCalls, a_stop_string_in_a_call_leaves_a_call_that_is_not_called_complete) {
  SimServer server;
  json::Value body = chat_with_tools(300, 1);
  body["stop"] = "days";
  const Answer cut = answer_of(server, body);
  EXPECT_EQ(cut.finish, "length");
  ASSERT_EQ(cut.calls.size(), 1U);
  EXPECT_FALSE(is_json(cut.calls[0].arguments)) << cut.calls[0].arguments;
}

TEST(ToolCalls, an_answer_is_calls_or_what_the_format_wants) {
  SimServer server;
  const json::Value schema = {{"type", "object"},
                              {"properties", {{"ok", {{"type", "boolean"}}}}},
                              {"required", {"ok"}},
                              {"additionalProperties", false}};
  std::map<std::string, int> finishes;
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    json::Value body = chat_with_tools(400, seed);
    body["response_format"] = {{"type", "json_schema"},
                               {"json_schema", {{"name", "answer"}, {"schema", schema}}}};
    body["tools"][0]["function"]["strict"] = true;
    body["parallel_tool_calls"] = false;
    for (const char* choice : {"auto", "required"}) {
      body["tool_choice"] = choice;
      const Answer answer = answer_of(server, body);
      ++finishes[choice + (" " + answer.finish)];
      if (answer.calls.empty()) {
        const Result<json::Value> content = json::parse(answer.content);
        ASSERT_TRUE(content && content->contains("ok")) << answer.content;
        EXPECT_EQ(answer.finish, "stop");
      } else {
        EXPECT_EQ(answer.content, "");
        EXPECT_EQ(answer.finish, "tool_calls");
        EXPECT_TRUE(is_json(answer.calls[0].arguments)) << answer.calls[0].arguments;
      }
    }
  }
  EXPECT_GT(finishes["auto stop"], 0);
  EXPECT_GT(finishes["auto tool_calls"], 0);
  EXPECT_EQ(finishes["required tool_calls"], 40);
}

// Beside a format arguments need not follow schemas that nobody asked for, so these may be of any kind.
TEST(ToolCalls, a_format_beside_tools_does_not_ask_for_schemas_that_compile) {
  SimServer server;
  json::Value body = chat_with_tools(4, 1);
  body["tools"][0]["function"]["parameters"]["properties"]["city"] = {{"type", "string"},
                                                                      {"pattern", "(a)\\1"}};
  body["tool_choice"] = "auto";
  EXPECT_EQ(server.post(kChat, body).status, 200);
  body["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(server.post(kChat, body).status, 200);
  body["tools"][0]["function"]["strict"] = true;
  const client::ClientResponse refused = server.post(kChat, body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(json::is_text(json::parse(refused.body).value()["error"]["param"], "tools"));
  body["tools"][0]["function"]["strict"] = false;
  body.erase("response_format");
  body["regex"] = "(a)\\1";
  const client::ClientResponse wrong_format = server.post(kChat, body);
  EXPECT_EQ(wrong_format.status, 400);
  EXPECT_TRUE(json::is_text(json::parse(wrong_format.body).value()["error"]["param"], "regex"));
}

TEST(ToolCalls, only_allowed_tools_are_called) {
  SimServer server;
  std::set<std::string> names;
  for (int seed = 0; seed < 25; ++seed) {
    json::Value body = chat_with_tools(120, seed);
    body["tool_choice"] = allowed_tools("required", {"get_news", "get_tides"});
    const Answer answer = answer_of(server, body);
    ASSERT_FALSE(answer.calls.empty());
    for (const Call& call : answer.calls) names.insert(call.name);
    // Free to call or to answer; the format keeps the answers short.
    body["tool_choice"] = allowed_tools("auto", {"get_news"});
    body["regex"] = "yes|no";
    const Answer free = answer_of(server, body);
    EXPECT_TRUE(!free.calls.empty() || free.content == "yes" || free.content == "no");
    for (const Call& call : free.calls) EXPECT_EQ(call.name, "get_news");
  }
  EXPECT_EQ(names, (std::set<std::string>{"get_news", "get_tides"}));
}

TEST(ToolCalls, several_calls_come_in_order_and_one_where_no_more_are_wanted) {
  SimServer server;
  const int32_t section_end =
      api::tests::demo_tokenizer()->token_id("<｜tool▁calls▁end｜>").value();
  for (int seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    json::Value body = chat_with_tools(200, seed);
    json::Value several = body;
    // The section cannot end before.
    several["stop_token_ids"] = {section_end};
    several["min_tokens"] = 199;
    const Answer answer = answer_of(server, several);
    ASSERT_GT(answer.calls.size(), 2U);
    for (size_t i = 0; i + 1 < answer.calls.size(); ++i) {
      EXPECT_TRUE(is_json(answer.calls[i].arguments)) << answer.calls[i].arguments;
    }
    body["parallel_tool_calls"] = false;
    const Answer single = answer_of(server, body);
    EXPECT_EQ(single.calls.size(), 1U);
    EXPECT_EQ(single.finish, "tool_calls");
  }
}

}  // namespace
}  // namespace fathom::serve
