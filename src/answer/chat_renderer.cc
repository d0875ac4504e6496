#include "answer/chat_renderer.h"

#include <utility>
#include <vector>

#include "answer/call_tally.h"
#include "answer/custom_input.h"
#include "answer/finish.h"
#include "answer/pieces/json_text.h"
#include "answer/pieces/logprobs.h"
#include "answer/usage.h"

namespace fathom::answer {
namespace {

using Kind = text::OutputEvent::Kind;

constexpr std::string_view kCallIdPrefix = "call_";

class ChatRenderer : public Renderer {
 public:
  ChatRenderer(api::ShownForm shown, const text::Tokenizer& tokenizer)
      : Renderer(std::move(shown)),
        tokenizer_(tokenizer),
        progress_(static_cast<size_t>(form().num_choices)) {
    constant_ = chunk_prefix(form(), form().stream ? "chat.completion.chunk" : "chat.completion");
  }

  void write_begin(std::span<Choice> choices, std::string& events) override {
    for (Choice& choice : choices) write_role(choice, events);
  }
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice> choices, std::string& events) override;
  std::string body(std::span<Choice> choices) override;

 private:
  // What was streamed of one choice.
  struct Progress {
    bool started = false;
    CallTally calls;
    std::string held_reasoning;        // until it is complete, without stream_reasoning
    std::optional<CustomInput> input;  // of the call being written, if it is of a custom tool
  };

  // Of the chunks of a choice.
  enum class Place { kFirst, kBetween, kLast };
  // One chunk around a delta. The tokens of the news go with its first chunk.
  void write_chunk(Choice& choice, std::string_view delta, Place place, std::string& events);
  // Once for each choice, without tokens.
  void write_role(Choice& choice, std::string& events);
  bool shows_tokens() const { return form().logprobs || form().return_token_ids; }
  void write_event(Choice& choice, const text::OutputEvent& event, std::string& events);
  void write_text(Choice& choice, Kind kind, std::string_view text, std::string& events);
  void write_function_call(Choice& choice, const text::OutputEvent& event, std::string& events);
  void append_prompt(std::string& out, const Choice& choice) const;
  void append_call_begin(std::string& calls, const text::OutputEvent& event, bool is_custom) const;
  void append_message(std::string& out, const Choice& choice, CallTally& tally) const;
  FinishedCalls finished_calls(const CallTally& tally) const {
    if (!tally.all_complete()) return FinishedCalls::kNone;
    return form().calls_functions ? FinishedCalls::kFunction : FinishedCalls::kTools;
  }
  Progress& progress(const Choice& choice) {
    return progress_[static_cast<size_t>(choice.setup().index)];
  }

  const text::Tokenizer& tokenizer_;
  std::string constant_;  // of every chunk
  std::vector<Progress> progress_;
};

void ChatRenderer::write_chunk(Choice& choice, std::string_view delta, Place place,
                               std::string& events) {
  events += "data: ";
  events += constant_;
  events += R"({"index":)";
  append_json(events, choice.setup().index);
  events += R"(,"delta":)";
  events += delta;
  events += R"(,"logprobs":)";
  if (form().logprobs && !choice.news.tokens.empty()) {
    append_chat_logprobs(events, choice.news.tokens, {tokenizer_, form().tokens_as_ids},
                         form().top_logprobs);
  } else {
    events += "null";
  }
  if (form().return_token_ids) {
    events += R"(,"token_ids":)";
    append_token_ids(events, std::span<const core::SampledToken>(choice.news.tokens));
  }
  choice.news.tokens.clear();
  events += ',';
  if (place == Place::kLast) {
    append_openai_finish(events, choice, finished_calls(progress(choice).calls));
  } else {
    events += R"("finish_reason":null,"matched_stop":null)";
  }
  events += "}]";
  if (form().return_token_ids && place == Place::kFirst) {
    events += R"(,"prompt_token_ids":)";
    append_token_ids(events, choice.setup().prompt);
  }
  if (form().continuous_usage_stats) {
    events += R"(,"usage":)";
    append_usage(events, choice.counts());
  }
  events += "}\n\n";
}

void ChatRenderer::write_text(Choice& choice, Kind kind, std::string_view text,
                              std::string& events) {
  if (text.empty()) return;
  std::string delta = kind == Kind::kReasoning ? R"({"reasoning_content":)"
                                               : R"({"reasoning_content":null,"content":)";
  append_json(delta, text);
  delta += '}';
  write_chunk(choice, delta, Place::kBetween, events);
}

void ChatRenderer::write_event(Choice& choice, const text::OutputEvent& event,
                               std::string& events) {
  Progress& state = progress(choice);
  if (event.kind == Kind::kReasoning) {
    if (form().stream_reasoning) return write_text(choice, event.kind, event.text, events);
    state.held_reasoning += event.text;
    return;
  }
  write_text(choice, Kind::kReasoning, std::exchange(state.held_reasoning, {}), events);
  if (event.kind == Kind::kContent) return write_text(choice, event.kind, event.text, events);
  state.calls.count(event);
  if (event.kind == Kind::kToolCallEnd) return;
  if (form().calls_functions) return write_function_call(choice, event, events);
  std::string delta = R"({"reasoning_content":null,"tool_calls":[{"index":)";
  append_json(delta, event.index);
  if (event.kind == Kind::kToolCallBegin) {
    const api::ToolKind kind = api::kind_of(form().tool_kinds.get(), event.text);
    state.input.reset();
    if (kind.is_custom) state.input.emplace();
    delta += R"(,"id":)";
    append_json(delta, call_id(event, kCallIdPrefix));
    delta += kind.is_custom ? R"(,"type":"custom","custom":{"name":)"
                            : R"(,"type":"function","function":{"name":)";
    append_json(delta, event.text);
    delta += kind.is_custom ? R"(,"input":""}}]})" : R"(,"arguments":""}}]})";
  } else if (state.input) {
    const std::string piece = state.input->push(event.text);
    if (piece.empty()) return;
    delta += R"(,"custom":{"input":)";
    append_json(delta, piece);
    delta += "}}]}";
  } else {
    delta += R"(,"function":{"arguments":)";
    append_json(delta, event.text);
    delta += "}}]}";
  }
  write_chunk(choice, delta, Place::kBetween, events);
}

void ChatRenderer::write_role(Choice& choice, std::string& events) {
  if (std::exchange(progress(choice).started, true)) return;
  std::vector<core::SampledToken> tokens = std::move(choice.news.tokens);
  choice.news.tokens.clear();
  write_chunk(choice, R"({"reasoning_content":null,"role":"assistant","content":""})",
              Place::kFirst, events);
  choice.news.tokens = std::move(tokens);
}

// There is at most one call.
void ChatRenderer::write_function_call(Choice& choice, const text::OutputEvent& event,
                                       std::string& events) {
  std::string delta = R"({"reasoning_content":null,"function_call":{)";
  if (event.kind == Kind::kToolCallBegin) {
    delta += R"("name":)";
    append_json(delta, event.text);
    delta += R"(,"arguments":""}})";
  } else {
    delta += R"("arguments":)";
    append_json(delta, event.text);
    delta += "}}";
  }
  write_chunk(choice, delta, Place::kBetween, events);
}

void ChatRenderer::write_news(Choice& choice, std::string& events) {
  Progress& state = progress(choice);
  ChoiceNews& news = choice.news;
  if (!news.empty() || choice.finished()) write_role(choice, events);
  if (!shows_tokens()) news.tokens.clear();
  for (const text::OutputEvent& event : news.events) write_event(choice, event, events);
  write_text(choice, Kind::kContent, news.text, events);
  news.events.clear();
  news.text.clear();
  if (!choice.finished()) return;
  write_text(choice, Kind::kReasoning, std::exchange(state.held_reasoning, {}), events);
  write_chunk(choice, R"({"reasoning_content":null})", Place::kLast, events);
}

void ChatRenderer::write_end(std::span<const Choice> choices, std::string& events) {
  if (form().include_usage) {
    events += "data: ";
    events += constant_;
    events += R"(],"usage":)";
    append_usage(events, total_usage(choices, form().choices_per_item));
    events += "}\n\n";
  }
  events += "data: [DONE]\n\n";
}

void ChatRenderer::append_call_begin(std::string& calls, const text::OutputEvent& event,
                                     bool is_custom) const {
  if (!calls.empty()) calls += ',';
  if (form().calls_functions) {
    calls += R"({"name":)";
  } else {
    calls += R"({"id":)";
    append_json(calls, call_id(event, kCallIdPrefix));
    calls += R"(,"index":)";
    append_json(calls, event.index);
    calls += is_custom ? R"(,"type":"custom","custom":{"name":)"
                       : R"(,"type":"function","function":{"name":)";
  }
  append_json(calls, event.text);
  calls += is_custom ? R"(,"input":")" : R"(,"arguments":")";
}

void ChatRenderer::append_message(std::string& out, const Choice& choice, CallTally& tally) const {
  std::string content = choice.news.text, reasoning, calls;
  std::optional<CustomInput> input;
  for (const text::OutputEvent& event : choice.news.events) {
    tally.count(event);
    switch (event.kind) {
      case Kind::kReasoning:
        reasoning += event.text;
        break;
      case Kind::kContent:
        content += event.text;
        break;
      case Kind::kToolCallBegin:
        input.reset();
        if (api::kind_of(form().tool_kinds.get(), event.text).is_custom) input.emplace();
        append_call_begin(calls, event, input.has_value());
        break;
      case Kind::kToolCallArguments:
        append_json_inside(calls, input ? input->push(event.text) : event.text);
        break;
      case Kind::kToolCallEnd:
        calls += form().calls_functions ? "\"}" : "\"}}";
        break;
    }
  }
  const bool has_tool_calls = tally.num_calls > 0;
  out += R"({"role":"assistant","content":)";
  if (has_tool_calls && content.empty()) {
    out += "null";
  } else {
    append_json(out, content);
  }
  out += R"(,"refusal":null,"reasoning_content":)";
  append_json_or_null(out, reasoning);
  if (form().calls_functions) {
    if (has_tool_calls) out += R"(,"function_call":)" + calls;
  } else if (has_tool_calls) {
    out += R"(,"tool_calls":[)" + calls + ']';
  }
  out += '}';
}

// All choices have the same one.
void ChatRenderer::append_prompt(std::string& out, const Choice& choice) const {
  if (form().return_token_ids) {
    out += R"(,"prompt_token_ids":)";
    append_token_ids(out, choice.setup().prompt);
  }
  if (form().prompt_logprobs) {
    out += R"(,"prompt_logprobs":)";
    append_prompt_logprobs(out, choice.prompt_logprobs(), tokenizer_, *form().prompt_logprobs);
  }
}

std::string ChatRenderer::body(std::span<Choice> choices) {
  std::string out = constant_;
  for (const Choice& choice : choices) {
    if (choice.setup().index > 0) out += ',';
    CallTally tally;
    out += R"({"index":)";
    append_json(out, choice.setup().index);
    out += R"(,"message":)";
    append_message(out, choice, tally);
    out += R"(,"logprobs":)";
    if (form().logprobs) {
      append_chat_logprobs(out, choice.news.tokens, {tokenizer_, form().tokens_as_ids},
                           form().top_logprobs);
    } else {
      out += "null";
    }
    if (form().return_token_ids) {
      out += R"(,"token_ids":)";
      append_token_ids(out, std::span<const core::SampledToken>(choice.news.tokens));
    }
    out += ',';
    append_openai_finish(out, choice, finished_calls(tally));
    out += '}';
  }
  out += ']';
  append_prompt(out, choices.front());
  out += R"(,"usage":)";
  append_usage(out, total_usage(choices, form().choices_per_item));
  out += R"(,"metadata":{"weight_version":"default"}})";
  return out;
}

}  // namespace

std::unique_ptr<Renderer> make_chat_renderer(api::ShownForm form,
                                             const text::Tokenizer& tokenizer) {
  return std::make_unique<ChatRenderer>(std::move(form), tokenizer);
}

}  // namespace fathom::answer
