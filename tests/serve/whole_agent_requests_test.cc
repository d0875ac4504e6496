// Requests as coding agents send them to /v1/messages, in words of our own: everything at once that an agent's request
// has, over a conversation that grows, and its stream event by event.

#include <gtest/gtest.h>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;

json::Value marked(const std::string& text) {
  return {{"type", "text"}, {"text", text}, {"cache_control", {{"type", "ephemeral"}}}};
}

// 20 tools of which most are deferred, and one that a server would run.
json::Value agent_tools() {
  json::Value tools = json::Value::array();
  for (int i = 0; i < 20; ++i) {
    json::Value tool = {{"name", "tool_" + std::to_string(i)},
                        {"description", "Does job " + std::to_string(i)},
                        {"input_schema",
                         {{"$schema", "http://json-schema.org/draft-07/schema#"},
                          {"type", "object"},
                          {"properties", {{"path", {{"type", "string"}, {"maxLength", 8}}}}},
                          {"required", {"path"}},
                          {"additionalProperties", false}}}};
    if (i > 4) tool["defer_loading"] = true;
    tools.push_back(std::move(tool));
  }
  tools.push_back({{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 8}});
  return tools;
}

json::Value agent_body(const json::Value& messages) {
  return {
      {"model", "demo"},
      {"max_tokens", 64},
      {"stream", true},
      {"temperature", 1},
      {"system", {marked("You help with code."), marked("The folder is /work.")}},
      {"messages", messages},
      {"tools", agent_tools()},
      {"metadata", {{"user_id", R"({"device": "d", "session": "s"})"}}},
      {"thinking", {{"type", "adaptive"}, {"display", "omitted"}}},
      {"context_management", {{"edits", {{{"type", "clear_thinking_20251015"}, {"keep", "all"}}}}}},
      {"output_config", {{"effort", "medium"}}},
      {"a_field_of_tomorrow", 1},
  };
}

struct AgentEvent {
  std::string name;
  json::Value data;
};

std::vector<AgentEvent> stream_of(SimServer& server, const json::Value& body) {
  const client::ClientResponse response = server.post("/v1/messages?beta=true", body);
  EXPECT_EQ(response.status, 200) << response.body;
  std::vector<AgentEvent> events;
  for (size_t begin = 0; begin < response.body.size();) {
    const size_t line_end = response.body.find('\n', begin),
                 end = response.body.find("\n\n", begin);
    EXPECT_EQ(response.body.compare(begin, 7, "event: "), 0);
    const std::string data = response.body.substr(line_end + 7, end - line_end - 7);
    events.push_back({.name = response.body.substr(begin + 7, line_end - begin - 7),
                      .data = json::parse(data).value()});
    EXPECT_TRUE(json::is_text(events.back().data["type"], events.back().name.c_str()));
    begin = end + 2;
  }
  return events;
}

// message_start, ping, blocks of which one is open at a time, message_delta, message_stop. Returns the blocks.
json::Value blocks_of(const std::vector<AgentEvent>& events) {
  json::Value blocks = json::Value::array();
  EXPECT_GE(events.size(), 4U);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(events[1].name, "ping");
  bool is_open = false;
  for (size_t i = 2; i + 2 < events.size(); ++i) {
    const AgentEvent& event = events[i];
    if (event.name == "ping") continue;
    if (event.name == "content_block_start") {
      EXPECT_FALSE(std::exchange(is_open, true));
      blocks.push_back(event.data["content_block"]);
    } else if (event.name == "content_block_stop") {
      EXPECT_TRUE(std::exchange(is_open, false));
    } else {
      EXPECT_EQ(event.name, "content_block_delta");
      EXPECT_TRUE(is_open);
      if (json::is_text(event.data["delta"]["type"], "thinking_delta")) ADD_FAILURE() << "shown";
      if (event.data["delta"].contains("signature")) {
        blocks.back()["signature"] = event.data["delta"]["signature"];
      }
    }
    if (blocks.empty() || !event.data.contains("index")) continue;
    EXPECT_EQ(event.data["index"].get<size_t>() + 1, blocks.size());
  }
  EXPECT_FALSE(is_open);
  EXPECT_EQ(events[events.size() - 2].name, "message_delta");
  EXPECT_EQ(events.back().name, "message_stop");
  return blocks;
}

TEST(AgentRequests, a_conversation_grows_without_a_refusal) {
  SimServer server({.num_blocks = 2048, .unknown_fields = std::nullopt});
  json::Value messages = json::Value::array();
  messages.push_back({{"role", "user"}, {"content", {marked("Fix the bug.")}}});
  messages.push_back({{"role", "system"}, {"content", "Today is a day."}});
  int prompt = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<AgentEvent> events = stream_of(server, agent_body(messages));
    const json::Value blocks = blocks_of(events);
    ASSERT_FALSE(blocks.empty());
    // The simulated model never stops thinking, of which nothing is shown.
    EXPECT_TRUE(json::is_text(blocks[0]["type"], "thinking")) << json::dump(blocks);
    EXPECT_TRUE(json::is_text(blocks[0]["thinking"], ""));
    EXPECT_FALSE(blocks[0]["signature"].get<std::string>().empty());
    const json::Value& usage = events[events.size() - 2].data["usage"];
    EXPECT_GT(usage["output_tokens"].get<int>(), 0);
    const int cached = usage["cache_read_input_tokens"].get<int>();
    if (turn > 0) {
      EXPECT_GE(cached, prompt - 128);
    }
    prompt = usage["input_tokens"].get<int>() + cached;
    EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"].get<int>(), prompt);

    const std::string id = "toolu_" + std::to_string(turn);
    messages.push_back(
        {{"role", "assistant"},
         {"content",
          {blocks[0],
           {{"type", "tool_use"}, {"id", id}, {"name", "tool_1"}, {"input", {{"path", "a"}}}}}}});
    messages.push_back(
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"},
            {"tool_use_id", id},
            {"content",
             {marked("The screen, turn " + std::to_string(turn) + ":"),
              {{"type", "image"},
               {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "iVBO"}}}},
              {{"type", "tool_reference"}, {"tool_name", "tool_7"}}}}}}}});
    messages.push_back({{"role", "system"}, {"content", {marked("Mind the tests.")}}});
  }
}

TEST(AgentRequests, a_forced_call_of_a_deferred_tool_is_made) {
  SimServer server({.num_blocks = 2048, .unknown_fields = std::nullopt});
  json::Value body = agent_body({{{"role", "user"}, {"content", "Fix the bug."}}});
  body["thinking"] = {{"type", "disabled"}};
  body["tool_choice"] = {{"type", "tool"}, {"name", "tool_9"}};
  const json::Value blocks = blocks_of(stream_of(server, body));
  ASSERT_FALSE(blocks.empty());
  EXPECT_TRUE(json::is_text(blocks.back()["type"], "tool_use"));
  EXPECT_TRUE(json::is_text(blocks.back()["name"], "tool_9"));
}

TEST(AgentRequests, what_was_left_out_is_counted_as_left_out) {
  SimServer server({.unknown_fields = std::nullopt});
  json::Value body = agent_body({{{"role", "user"}, {"content", "Fix the bug."}}});
  const auto count = [&] {
    return server.post_json("/v1/messages/count_tokens", body)["input_tokens"].get<int>();
  };
  const int with_search = count();
  body["tools"].erase(body["tools"].size() - 1);
  EXPECT_EQ(count(), with_search);
  body["tools"].erase(body["tools"].size() - 1);
  EXPECT_LT(count(), with_search);
}

}  // namespace
}  // namespace fathom::serve
