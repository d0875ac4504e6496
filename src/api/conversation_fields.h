#pragma once
// `messages` and `tools` of a body -> text::Conversation, and a conversation -> prompt. What a checkpoint's
// template has no place for is refused, never dropped; past reasoning (reasoning_content) is the exception:
// the published templates leave it out, and v3.2 where the user has spoken since.
//
//   text::Conversation chat;
//   chat.messages = read_messages(reader, model);
//   chat.tools = shown_tools(read_tools(reader, model));
//   ChatPrompt prompt = render_chat(chat, {.continues_final = false}, model, problem);
//
// Pure, thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "text/call_results.h"
#include "text/chat_format.h"
#include "text/conversation.h"

namespace fathom::api {

std::vector<text::Message> read_messages(FieldReader& reader, const ServedModel& model);

// Array of well-formed tools, perhaps empty: functions, wrapped or bare, and custom ones (custom_tools.h).
json::Value read_tools(FieldReader& reader, const ServedModel& model);
// The same of a body that may have functions in place of tools (legacy_functions.h).
json::Value read_offered_tools(FieldReader& reader, const ServedModel& model);
// Text, a JSON object as a rule. Some clients send the object itself, some nothing for no arguments.
std::string read_arguments(FieldReader& function);

struct Thinking {
  bool on = false;
  std::optional<int> budget{};  // tokens by which the reasoning ends
};
// Whether the assistant shall reason: thinking, enable_thinking, reasoning, chat_template_kwargs and
// reasoning_effort, which may not contradict each other, else the model's default. What the model cannot do
// is refused. And how long at most: thinking.budget_tokens, reasoning.max_tokens and thinking_token_budget under each
// of its names; several only if equal.
Thinking read_thinking(FieldReader& reader, const ServedModel& model);
// What a chat gets that says nothing of it: "always" or "never" where the model has one way, else "on" or "off".
std::string_view thinking_by_default(const ServedModel& model);

// Whether the last message is left open: continue_final_message, or "prefix": true in it. After read_messages().
bool read_continuation(FieldReader& reader);
// What a body asked of reasoning; nothing: the model's default.
struct ThinkingSwitch {
  std::string field;  // the field that asked for it
  std::optional<bool> on;
};
// What the model cannot do is refused.
bool resolve_thinking(const ThinkingSwitch& asked, const ServedModel& model, FieldProblem& problem);
// Whether the model's format can reason and can leave it.
bool has_thinking_switch(const ServedModel& model);
// A level of reasoning at `key`: none is off, any other level is on where the model can choose.
void read_effort(FieldReader& reader, std::string_view key, const ServedModel& model,
                 ThinkingSwitch& state);
struct BudgetField {
  std::string field;  // that set it
  std::optional<int> tokens{};
};
// A budget of the reasoning at `key`. Names that have it take -1 for none.
void read_budget(FieldReader& reader, std::string_view key, int min, BudgetField& budget);
// Of reasoning; a level is a wish: these models have one depth of reasoning, or none.
bool is_reasoning_effort(std::string_view level);
std::string_view reasoning_efforts();  // "none, minimal, ...", for errors

struct ChatPrompt {
  std::vector<int32_t> ids;
  // The model's, or its variant for this conversation.
  text::ChatFormat format = text::ChatFormat::kV3;
  bool starts_in_reasoning = false;
};

struct ChatRendering {
  // The last message, an assistant's, is left open and the output goes on where it ends.
  bool continues_final = false;
  std::string prompt_field = "messages";
  // Where each message stands in the body, for errors; null: message i at messages[i]. Borrowed.
  const std::vector<std::string>* places = nullptr;
  text::ResultPlace result_place = text::ResultPlace::kRightBehind;
};

// Binds results to their calls first, which may change the order of the messages.
// REQUIRES: model.chat_format.
ChatPrompt render_chat(text::Conversation& chat, const ChatRendering& rendering,
                       const ServedModel& model, FieldProblem& problem);

}  // namespace fathom::api
