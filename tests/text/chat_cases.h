#pragma once
// Conversations of tests/data/chat-templates/*.json, as OpenAI requests.
//
//   const ChatCases cases = load_chat_cases("cases.json");

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tests/source_tree.h"
#include "text/conversation.h"

namespace fathom::text::tests {

struct ChatCases {
  std::vector<Conversation> conversations;
  json::Value expected;
};

inline Message message_from_json(const json::Value& value) {
  const auto text = [](const json::Value& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  Message message{.role = text(value, "role")};
  if (value.contains("content") && value["content"].is_string())
    message.content = text(value, "content");
  message.tool_call_id = text(value, "tool_call_id");
  message.name = text(value, "name");
  message.reasoning = text(value, "reasoning_content");
  for (const json::Value& call : value.value("tool_calls", json::Value::array())) {
    message.tool_calls.push_back(
        {text(call, "id"), text(call["function"], "name"), text(call["function"], "arguments")});
  }
  return message;
}

inline Conversation conversation_from_json(const json::Value& request) {
  Conversation chat;
  for (const json::Value& message : request["messages"])
    chat.messages.push_back(message_from_json(message));
  chat.tools = request.value("tools", json::Value::array());
  chat.add_generation_prompt = request.value("add_generation_prompt", true);
  chat.thinking = request.value("thinking", false);
  return chat;
}

inline ChatCases load_chat_cases(const std::string& file_name) {
  const std::string path = source_path("tests/data/chat-templates/") + file_name;
  std::ifstream file(path, std::ios::binary);
  FATHOM_CHECK(file.good(), "cannot read " << path);
  std::stringstream text;
  text << file.rdbuf();
  const auto parsed = json::parse(text.str());
  FATHOM_CHECK(parsed.has_value(), path << ": " << parsed.error().message);
  ChatCases cases{.conversations = {}, .expected = (*parsed)["expected"]};
  for (const json::Value& request : (*parsed)["cases"]) {
    cases.conversations.push_back(conversation_from_json(request));
  }
  return cases;
}

}  // namespace fathom::text::tests
