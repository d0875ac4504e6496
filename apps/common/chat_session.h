#pragma once
// The chat side of a command: conversations to prompts, and streamed output to reasoning, content and tool
// calls.
//
//   ChatSession chat(text_setup, {.system = "Answer briefly.", .thinking = false});
//   ChatPrompt prompt = chat.prompt_for("Hello!");
//   ChatOutput output = chat.output(prompt);
//   output.push(piece);  ...  output.finish();
//   chat.add_turn("Hello!", output.content());        // for the next prompt_for()
//
// One thread uses a session. The text setup outlives it. Throws StartupError.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/text_setup.h"
#include "base/json.h"
#include "text/conversation.h"
#include "text/output_parser.h"

namespace fathom::apps {

struct ChatOptions {
  std::string system;
  bool thinking = false;
};

struct ChatPrompt {
  std::vector<int32_t> ids;
  bool opens_reasoning = false;
};

// One answer as it comes.
class ChatOutput {
 public:
  ChatOutput(text::ChatFormat format, bool opens_reasoning)
      : parser_(format, {.reasoning = true, .starts_in_reasoning = opens_reasoning}) {}

  // What to show of the next piece: reasoning stands between <think> and </think>, a tool call on a line
  // of its own.
  std::string push(std::string_view piece);
  std::string finish();

  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  // [{"name", "arguments"}]
  const json::Value& tool_calls() const { return tool_calls_; }

 private:
  std::string take(const std::vector<text::OutputEvent>& events);

  text::OutputParser parser_;
  bool in_reasoning_ = false;
  std::string reasoning_, content_;
  json::Value tool_calls_ = json::Value::array();
};

class ChatSession {
 public:
  ChatSession(const TextSetup& setup, const ChatOptions& options);

  // The conversation so far and this message of the user.
  ChatPrompt prompt_for(const std::string& message) const;
  ChatOutput output(const ChatPrompt& prompt) const {
    return ChatOutput(format_, prompt.opens_reasoning);
  }
  void add_turn(const std::string& message, const std::string& answer);
  // Special tokens that ChatOutput reads.
  std::vector<int32_t> marker_ids() const;

 private:
  const TextSetup& setup_;
  text::ChatFormat format_;
  text::Conversation conversation_;
};

}  // namespace fathom::apps
