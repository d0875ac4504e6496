#pragma once
// `messages` and `tools` of a body -> text::Conversation, and a conversation -> prompt. What a checkpoint's
// template has no place for is refused, never dropped; past reasoning (reasoning_content) is the exception:
// every published template leaves it out.
//
//   text::Conversation chat;
//   chat.messages = read_messages(reader, model);
//   chat.tools = read_tools(reader, model);
//   ChatPrompt prompt = render_chat(chat, {.continue_final_message = false}, model, problem);
//
// Pure, thread-safe.

#include <cstdint>
#include <vector>

#include "api/field_reader.h"
#include "api/served_model.h"
#include "text/chat_format.h"
#include "text/conversation.h"

namespace fathom::api {

std::vector<text::Message> read_messages(FieldReader& reader, const ServedModel& model);

// Array of well-formed tools, perhaps empty.
json::Value read_tools(FieldReader& reader, const ServedModel& model);

// Whether the assistant shall reason: thinking, enable_thinking, reasoning, chat_template_kwargs and
// reasoning_effort, which may not contradict each other, else the model's default. What the model cannot do
// is refused.
bool read_thinking(FieldReader& reader, const ServedModel& model);

// Whether the last message is left open: continue_final_message, or "prefix": true in it. After read_messages().
bool read_continuation(FieldReader& reader);

struct ChatPrompt {
  std::vector<int32_t> ids;
  text::ChatFormat format = text::ChatFormat::kV3;  // that of this conversation
  bool starts_in_reasoning = false;
};

// REQUIRES: model.chat_format. continue_final: the last message, an assistant's, is left open and the output
// goes on where it ends.
ChatPrompt render_chat(const text::Conversation& chat, bool continue_final,
                       const ServedModel& model, FieldProblem& problem);

}  // namespace fathom::api
