#include "apps/common/chat_session.h"

#include "base/startup_error.h"
#include "text/chat_encoder.h"

namespace fathom::apps {

std::string ChatOutput::push(std::string_view piece) {
  std::vector<text::OutputEvent> events;
  parser_.push(piece, events);
  return take(events);
}

std::string ChatOutput::finish() {
  std::vector<text::OutputEvent> events;
  parser_.finish(events);
  std::string shown = take(events);
  if (in_reasoning_) shown += "</think>\n";
  in_reasoning_ = false;
  return shown;
}

std::string ChatOutput::take(const std::vector<text::OutputEvent>& events) {
  using Kind = text::OutputEvent::Kind;
  std::string shown;
  for (const text::OutputEvent& event : events) {
    const bool is_reasoning = event.kind == Kind::kReasoning;
    if (is_reasoning != in_reasoning_) shown += is_reasoning ? "<think>" : "</think>\n";
    in_reasoning_ = is_reasoning;
    switch (event.kind) {
      case Kind::kReasoning:
        reasoning_ += event.text;
        shown += event.text;
        break;
      case Kind::kContent:
        content_ += event.text;
        shown += event.text;
        break;
      case Kind::kToolCallBegin:
        tool_calls_.push_back({{"name", event.text}, {"arguments", ""}});
        shown += "[tool call] " + event.text + " ";
        break;
      case Kind::kToolCallArguments:
        tool_calls_.back()["arguments"] =
            tool_calls_.back()["arguments"].get<std::string>() + event.text;
        shown += event.text;
        break;
      case Kind::kToolCallEnd:
        shown += "\n";
        break;
    }
  }
  return shown;
}

ChatSession::ChatSession(const TextSetup& setup, const ChatOptions& options)
    : setup_(setup), format_(require_chat_format(setup)) {
  if (!options.system.empty()) {
    conversation_.messages.push_back({.role = "system", .content = options.system});
  }
  conversation_.thinking = options.thinking;
}

ChatPrompt ChatSession::prompt_for(const std::string& message) const {
  text::Conversation chat = conversation_;
  chat.messages.push_back({.role = "user", .content = message});
  const std::vector<text::Segment> segments =
      value_or_throw(text::render(text::format_for(format_, chat), chat));
  return {.ids = text::encode(segments, setup_.tokenizer),
          .opens_reasoning = text::opens_reasoning(segments)};
}

void ChatSession::add_turn(const std::string& message, const std::string& answer) {
  conversation_.messages.push_back({.role = "user", .content = message});
  conversation_.messages.push_back({.role = "assistant", .content = answer});
}

std::vector<int32_t> ChatSession::marker_ids() const {
  std::vector<int32_t> ids;
  for (const std::string_view marker : text::output_markers(format_)) {
    if (const std::optional<int32_t> id = setup_.tokenizer.added_token_id(marker))
      ids.push_back(*id);
  }
  return ids;
}

}  // namespace fathom::apps
