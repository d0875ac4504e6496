#include "answer/messages_renderer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "answer/call_tally.h"
#include "answer/pieces/json_text.h"
#include "api/kept_reasoning.h"
#include "api/message_blocks.h"

namespace fathom::answer {
namespace {

constexpr std::string_view kToolUseIdPrefix = "toolu_";

void append_event(std::string& events, std::string_view name, std::string_view data) {
  events += "event: ";
  events += name;
  events += "\ndata: ";
  events += data;
  events += "\n\n";
}

// Anthropic's input_tokens do not count the part of the prompt that was found in the cache.
void append_message_usage(std::string& out, const ChoiceCounts& counts) {
  const int cached = std::min(counts.cached_tokens, counts.prompt_tokens);
  out += R"({"input_tokens":)";
  append_json(out, counts.prompt_tokens - cached);
  out += R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  append_json(out, cached);
  out += R"(,"output_tokens":)";
  append_json(out, counts.completion_tokens);
  out += R"(,"output_tokens_details":{"thinking_tokens":)";
  append_json(out, counts.reasoning_tokens);
  out += R"(},"service_tier":"standard"})";
}

std::string_view stop_reason(const Choice& choice, const CallTally& calls) {
  switch (choice.finish()) {
    case Finish::kNone:
      break;
    case Finish::kStop:
      if (calls.all_complete()) return R"("tool_use")";
      return choice.stop_string_found() ? R"("stop_sequence")" : R"("end_turn")";
    case Finish::kLength:
      return choice.setup().is_cut_by_context ? R"("model_context_window_exceeded")"
                                              : R"("max_tokens")";
    case Finish::kAbort:
      return R"("abort")";
  }
  return "null";
}

// "stop_reason":"stop_sequence","stop_sequence":"\n\n"
void append_stop(std::string& out, const Choice& choice, const CallTally& calls) {
  const std::string_view reason = stop_reason(choice, calls);
  out += R"("stop_reason":)";
  out += reason;
  out += R"(,"stop_sequence":)";
  if (reason == R"("stop_sequence")") {
    append_json(out, choice.matched_string());
  } else {
    out += "null";
  }
}

// {"type":"message","id":..,"role":..,"model":..,"content":
void append_message_head(std::string& out, const api::ShownForm& form) {
  out += R"({"id":)";
  append_json(out, form.id);
  out += R"(,"type":"message","role":"assistant","model":)";
  append_json(out, form.model);
  out += R"(,"content":)";
}

class MessagesRenderer : public Renderer {
  using Kind = text::OutputEvent::Kind;

 public:
  explicit MessagesRenderer(api::ShownForm shown) : Renderer(std::move(shown)) {}

  void write_begin(std::span<Choice> choices, std::string& events) override {
    write_start(choices.front(), events);
  }
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice> choices, std::string& events) override;
  void write_silence(std::string& events) override;
  void write_error(const api::ApiError& error, std::string& events) override {
    append_event(events, "error", api::to_json(error, http::ClientForm::kAnthropic));
  }
  std::string body(std::span<Choice> choices) override;

 private:
  void write_start(const Choice& choice, std::string& events);
  void write_event(const text::OutputEvent& event, std::string& events);
  // Appends to the open block if it is of that kind, else closes it and opens one.
  void write_text(Kind kind, std::string_view text, std::string& events);
  void open_block(Kind kind, std::string_view block, std::string& events);
  void close_block(std::string& events);
  void write_delta(std::string_view type, std::string_view key, std::string_view text,
                   std::string& events) const;
  void append_blocks(std::string& out, const Choice& choice);
  // Anthropic's clients drop thinking blocks that have no signature. Where the thoughts are omitted they are in it, so
  // that they come back with the history.
  std::string signature(std::string_view thoughts) const {
    return form().omits_thinking ? api::keep_reasoning(thoughts) : form().id;
  }
  std::string block_place() const { return R"("index":)" + std::to_string(block_idx_); }

  CallTally calls_;
  bool started_ = false;
  int block_idx_ = -1;
  std::optional<Kind> open_;  // of the block that is open; kToolCallBegin for a call
  std::string omitted_;       // thoughts of the open block that are not shown
};

void MessagesRenderer::write_start(const Choice& choice, std::string& events) {
  if (std::exchange(started_, true)) return;
  std::string data = R"({"type":"message_start","message":)";
  append_message_head(data, form());
  data += R"([],"stop_reason":null,"stop_sequence":null,"usage":)";
  append_message_usage(data, choice.counts());
  data += "}}";
  append_event(events, "message_start", data);
  write_silence(events);
}

void MessagesRenderer::write_silence(std::string& events) {
  append_event(events, "ping", R"({"type":"ping"})");
}

void MessagesRenderer::open_block(Kind kind, std::string_view block, std::string& events) {
  close_block(events);
  ++block_idx_;
  open_ = kind;
  std::string data = R"({"type":"content_block_start",)" + block_place() + R"(,"content_block":)";
  data += block;
  data += '}';
  append_event(events, "content_block_start", data);
}

void MessagesRenderer::close_block(std::string& events) {
  if (!open_) return;
  if (open_ == Kind::kReasoning) {
    write_delta("signature_delta", "signature", signature(std::exchange(omitted_, {})), events);
  }
  open_.reset();
  append_event(events, "content_block_stop",
               R"({"type":"content_block_stop",)" + block_place() + '}');
}

void MessagesRenderer::write_delta(std::string_view type, std::string_view key,
                                   std::string_view text, std::string& events) const {
  std::string data = R"({"type":"content_block_delta",)" + block_place() + R"(,"delta":{"type":)";
  append_json(data, type);
  data += ',';
  append_json(data, key);
  data += ':';
  append_json(data, text);
  data += "}}";
  append_event(events, "content_block_delta", data);
}

void MessagesRenderer::write_text(Kind kind, std::string_view text, std::string& events) {
  if (text.empty()) return;
  const bool is_thinking = kind == Kind::kReasoning;
  if (open_ != kind) {
    open_block(kind,
               is_thinking ? R"({"type":"thinking","thinking":"","signature":""})"
                           : R"({"type":"text","text":""})",
               events);
  }
  if (is_thinking && form().omits_thinking) {
    omitted_ += text;
    return;
  }
  if (is_thinking) return write_delta("thinking_delta", "thinking", text, events);
  write_delta("text_delta", "text", text, events);
}

void MessagesRenderer::write_event(const text::OutputEvent& event, std::string& events) {
  calls_.count(event);
  switch (event.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
      return write_text(event.kind, event.text, events);
    case Kind::kToolCallBegin: {
      std::string block = R"({"type":"tool_use","id":)";
      append_json(block, call_id(event, kToolUseIdPrefix));
      block += R"(,"name":)";
      append_json(block, event.text);
      block += R"(,"input":{}})";
      return open_block(event.kind, block, events);
    }
    case Kind::kToolCallArguments:
      return write_delta("input_json_delta", "partial_json", event.text, events);
    case Kind::kToolCallEnd:
      return close_block(events);
  }
}

void MessagesRenderer::write_news(Choice& choice, std::string& events) {
  ChoiceNews& news = choice.news;
  if (news.empty() && !choice.finished()) return;
  write_start(choice, events);
  for (const text::OutputEvent& event : news.events) write_event(event, events);
  write_text(Kind::kContent, news.text, events);
  news = {};
}

void MessagesRenderer::write_end(std::span<const Choice> choices, std::string& events) {
  const Choice& choice = choices.front();
  close_block(events);
  std::string data = R"({"type":"message_delta","delta":{)";
  append_stop(data, choice, calls_);
  data += R"(},"usage":)";
  append_message_usage(data, choice.counts());
  data += '}';
  append_event(events, "message_delta", data);
  append_event(events, "message_stop", R"({"type":"message_stop"})");
}

// `input` is an object. What is none, because the answer was cut or the model wrote something else, is put into
// one under the name that Anthropic's documentation gives for it.
void append_input(std::string& out, std::string_view arguments, bool is_complete) {
  if (is_complete) {
    out += arguments;
  } else {
    out += '{';
    append_json(out, api::kInvalidJsonKey);
    out += ':';
    append_json(out, arguments);
    out += '}';
  }
}

void MessagesRenderer::append_blocks(std::string& out, const Choice& choice) {
  std::string arguments;
  const size_t begin = out.size();
  for (const text::OutputEvent& event : choice.news.events) {
    calls_.count(event);
    if (event.kind == Kind::kToolCallArguments) {
      arguments += event.text;
      continue;
    }
    if (event.kind == Kind::kToolCallEnd) {
      append_input(out, arguments, event.is_complete);
      out += '}';
      arguments.clear();
      continue;
    }
    if (out.size() > begin) out += ',';
    if (event.kind == Kind::kToolCallBegin) {
      out += R"({"type":"tool_use","id":)";
      append_json(out, call_id(event, kToolUseIdPrefix));
      out += R"(,"name":)";
      append_json(out, event.text);
      out += R"(,"input":)";
    } else if (event.kind == Kind::kReasoning) {
      out += R"({"type":"thinking","thinking":)";
      append_json(out, form().omits_thinking ? std::string_view() : std::string_view(event.text));
      out += R"(,"signature":)";
      append_json(out, signature(event.text));
      out += '}';
    } else {
      out += R"({"type":"text","text":)";
      append_json(out, event.text);
      out += '}';
    }
  }
}

std::string MessagesRenderer::body(std::span<Choice> choices) {
  Choice& choice = choices.front();
  // Without a parser all of it is text.
  if (!choice.news.text.empty()) {
    choice.news.events.push_back({.kind = Kind::kContent, .text = std::move(choice.news.text)});
  }
  std::string out;
  append_message_head(out, form());
  out += '[';
  append_blocks(out, choice);
  out += "],";
  append_stop(out, choice, calls_);
  out += R"(,"usage":)";
  append_message_usage(out, choice.counts());
  out += '}';
  return out;
}

}  // namespace

std::unique_ptr<Renderer> make_messages_renderer(api::ShownForm form) {
  return std::make_unique<MessagesRenderer>(std::move(form));
}

}  // namespace fathom::answer
