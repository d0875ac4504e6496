#include "answer/responses_renderer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "answer/output_item.h"
#include "answer/pieces/draw_id.h"
#include "answer/pieces/json_text.h"
#include "answer/pieces/logprobs.h"
#include "api/responses/response_draft.h"

namespace fathom::answer {
namespace {

void append_response_usage(std::string& out, const ChoiceCounts& counts) {
  out += R"({"input_tokens":)";
  append_json(out, counts.prompt_tokens);
  out += R"(,"input_tokens_details":{"cached_tokens":)";
  append_json(out, std::min(counts.cached_tokens, counts.prompt_tokens));
  out += R"(,"cache_write_tokens":0},"output_tokens":)";
  append_json(out, counts.completion_tokens);
  out += R"(,"output_tokens_details":{"reasoning_tokens":)";
  append_json(out, counts.reasoning_tokens);
  out += R"(},"total_tokens":)";
  append_json(out, counts.prompt_tokens + counts.completion_tokens);
  out += '}';
}

// A stop string within a structure leaves its beginning, which is no completed response.
bool is_whole(const Choice& choice) {
  return choice.finish() == Finish::kStop && !choice.is_cut_structure();
}

std::string_view incomplete_details(const Choice& choice) {
  switch (choice.finish()) {
    case Finish::kStop:
      return R"({"reason":"stop"})";
    case Finish::kLength:
      return R"({"reason":"max_output_tokens"})";
    default:
      return R"({"reason":"abort"})";
  }
}

class ResponsesRenderer : public Renderer {
  using Kind = text::OutputEvent::Kind;
  using Tokens = std::span<const PlacedToken>;

 public:
  ResponsesRenderer(api::ShownForm shown, const text::Tokenizer& tokenizer)
      : Renderer(std::move(shown)), tokenizer_(tokenizer) {
    answer_.role = "assistant";
  }

  void write_begin(std::span<Choice> /*choices*/, std::string& events) override {
    write_start(events);
  }
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice> choices, std::string& events) override;
  // As OpenAI does; Codex gives up on a stream without events, and comments are none.
  void write_silence(std::string& events) override { write("keepalive", "", events); }
  void write_error(const api::ApiError& error, std::string& events) override;
  std::string body(std::span<Choice> choices) override;

 private:
  void write(std::string_view type, std::string_view members, std::string& events);
  void write_start(std::string& events);
  // Everything that is new of a choice.
  void write_events(const ChoiceNews& news, std::string& events);
  void write_output(const text::OutputEvent& event, Tokens tokens, std::string& events);
  // `tokens` are what content is made of, where log-probabilities are asked for.
  void write_text(const text::OutputEvent& event, Tokens tokens, std::string& events);
  void write_arguments(std::string_view piece, std::string& events);
  OutputItem call_item(const text::OutputEvent& begin) const;
  void open_item(OutputItem item, std::string& events);
  void close_item(std::string_view status, std::string& events);
  void keep_of(const OutputItem& item);
  // Closes the last item and stores the response if it is to be kept. Returns the finished response as JSON.
  std::string end(const Choice& choice, std::string& events);
  std::string response(std::string_view status, std::string_view details,
                       const ChoiceCounts* counts) const;
  std::string place() const {
    return R"("item_id":)" + json_text_of(open_->id) + R"(,"output_index":)" +
           std::to_string(num_items_);
  }

  const text::Tokenizer& tokenizer_;
  bool started_ = false;
  int64_t sequence_number_ = 0;
  int num_items_ = 0;                          // that are done
  std::string items_;                          // those, as JSON
  std::vector<api::StoredItem> stored_items_;  // those, within items_
  std::optional<OutputItem> open_;
  text::Message answer_;  // as a later request will see it
};

void ResponsesRenderer::write(std::string_view type, std::string_view members,
                              std::string& events) {
  events += "event: ";
  events += type;
  events += "\ndata: {\"type\":\"";
  events += type;
  events += R"(","sequence_number":)";
  append_json(events, sequence_number_++);
  if (!members.empty()) events += ',';
  events += members;
  events += "}\n\n";
}

std::string ResponsesRenderer::response(std::string_view status, std::string_view details,
                                        const ChoiceCounts* counts) const {
  std::string out = R"({"id":)" + json_text_of(form().id);
  out += R"(,"object":"response","created_at":)";
  append_json(out, form().created);
  out += R"(,"status":")";
  out += status;
  out += R"(","error":null,"incomplete_details":)";
  out += details;
  out += R"(,"model":)";
  append_json(out, form().model);
  out += R"(,"output":[)";
  out += items_;
  out += R"(],"usage":)";
  if (counts != nullptr) {
    append_response_usage(out, *counts);
  } else {
    out += "null";
  }
  out += ',';
  out += form().response->settings;
  out += '}';
  return out;
}

void ResponsesRenderer::write_start(std::string& events) {
  if (std::exchange(started_, true)) return;
  const std::string begun = R"("response":)" + response("in_progress", "null", nullptr);
  write("response.created", begun, events);
  write("response.in_progress", begun, events);
}

void ResponsesRenderer::open_item(OutputItem item, std::string& events) {
  close_item("completed", events);
  open_ = std::move(item);
  write("response.output_item.added",
        R"("output_index":)" + std::to_string(num_items_) + R"(,"item":)" +
            open_->json("in_progress", /*is_begin=*/true),
        events);
  if (open_->is_call()) return;
  write("response.content_part.added", place() + R"(,"content_index":0,"part":)" + open_->part(""),
        events);
}

void ResponsesRenderer::close_item(std::string_view status, std::string& events) {
  if (!open_) return;
  const std::string text = json_text_of(open_->shown());
  if (open_->is_custom()) {
    write("response.custom_tool_call_input.done", place() + R"(,"input":)" + text, events);
  } else if (open_->is_call()) {
    write("response.function_call_arguments.done",
          place() + R"(,"name":)" + json_text_of(open_->tool.name) + R"(,"arguments":)" + text,
          events);
  } else {
    const bool is_reasoning = open_->is_reasoning();
    write(is_reasoning ? "response.reasoning_text.done" : "response.output_text.done",
          place() + R"(,"content_index":0,"text":)" + text +
              (is_reasoning ? "" : R"(,"logprobs":[)" + open_->logprobs + ']'),
          events);
    write("response.content_part.done",
          place() + R"(,"content_index":0,"part":)" + open_->part(open_->text), events);
  }
  const std::string item = open_->json(status, /*is_begin=*/false);
  write("response.output_item.done",
        R"("output_index":)" + std::to_string(num_items_) + R"(,"item":)" + item, events);
  if (num_items_++ > 0) items_ += ',';
  stored_items_.push_back({.id = open_->id, .begin = items_.size(), .size = item.size()});
  items_ += item;
  keep_of(*open_);
  open_.reset();
}

void ResponsesRenderer::keep_of(const OutputItem& item) {
  if (item.is_call()) {
    answer_.tool_calls.push_back(
        {.id = item.call_id, .name = item.shown_name, .arguments = item.text});
  } else if (item.is_reasoning()) {
    answer_.reasoning += item.text;
  } else {
    if (!answer_.content) answer_.content.emplace();
    *answer_.content += item.text;
  }
}

void ResponsesRenderer::write_text(const text::OutputEvent& event, Tokens tokens,
                                   std::string& events) {
  if (event.text.empty()) return;
  const bool is_reasoning = event.kind == Kind::kReasoning;
  if (!open_ || open_->kind != event.kind) {
    open_item({.kind = event.kind,
               .id = draw_id(is_reasoning ? "rs_" : "msg_"),
               .is_encrypted = is_reasoning && form().response->has_encrypted_reasoning},
              events);
  }
  open_->text += event.text;
  std::string logprobs;
  for (const PlacedToken& placed : tokens) {
    if (!logprobs.empty()) logprobs += ',';
    append_token_logprob(logprobs, placed.token, {tokenizer_}, form().top_logprobs);
  }
  if (!open_->logprobs.empty() && !logprobs.empty()) open_->logprobs += ',';
  open_->logprobs += logprobs;
  write(is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
        place() + R"(,"content_index":0,"delta":)" + json_text_of(event.text) +
            (is_reasoning ? "" : R"(,"logprobs":[)" + logprobs + ']'),
        events);
}

OutputItem ResponsesRenderer::call_item(const text::OutputEvent& begin) const {
  OutputItem item{.kind = begin.kind,
                  .id = "",
                  .call_id = begin.id.empty() ? draw_id("call_") : begin.id,
                  .shown_name = begin.text,
                  .tool = api::kind_of(form().tool_kinds.get(), begin.text)};
  item.id = draw_id(item.is_custom() ? "ctc_" : "fc_");
  return item;
}

void ResponsesRenderer::write_arguments(std::string_view piece, std::string& events) {
  open_->text += piece;
  if (!open_->is_custom()) {
    return write("response.function_call_arguments.delta",
                 place() + R"(,"delta":)" + json_text_of(piece), events);
  }
  const std::string more = open_->reader.push(piece);
  if (more.empty()) return;
  open_->input += more;
  write("response.custom_tool_call_input.delta", place() + R"(,"delta":)" + json_text_of(more),
        events);
}

void ResponsesRenderer::write_output(const text::OutputEvent& event, Tokens tokens,
                                     std::string& events) {
  switch (event.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
      return write_text(event, tokens, events);
    case Kind::kToolCallBegin:
      return open_item(call_item(event), events);
    case Kind::kToolCallArguments:
      return write_arguments(event.text, events);
    case Kind::kToolCallEnd:
      return close_item(event.is_complete ? "completed" : "incomplete", events);
  }
}

void ResponsesRenderer::write_events(const ChoiceNews& news, std::string& events) {
  const auto at = [](size_t event_idx) {
    return [event_idx](const PlacedToken& placed) { return placed.event_idx < event_idx; };
  };
  for (size_t i = 0; i < news.events.size(); ++i) {
    const auto begin = std::partition_point(news.placed.begin(), news.placed.end(), at(i));
    const auto end = std::partition_point(begin, news.placed.end(), at(i + 1));
    write_output(news.events[i], Tokens(begin, end), events);
  }
  write_text({.kind = Kind::kContent, .text = news.text}, {}, events);
}

void ResponsesRenderer::write_news(Choice& choice, std::string& events) {
  ChoiceNews& news = choice.news;
  if (news.empty() && !choice.finished()) return;
  write_start(events);
  write_events(news, events);
  news = {};
}

std::string ResponsesRenderer::end(const Choice& choice, std::string& events) {
  const bool is_complete = is_whole(choice);
  close_item(is_complete ? "completed" : "incomplete", events);
  const std::string_view details = is_complete ? "null" : incomplete_details(choice);
  std::string made = response(is_complete ? "completed" : "incomplete", details, &choice.counts());
  if (form().response->keep) {
    if (!answer_.content && answer_.tool_calls.empty()) answer_.content = "";
    api::StoredResponse stored{.messages = std::move(form().response->messages),
                               .body = made,
                               .items = std::move(stored_items_)};
    // Of no text within, where quotes are escaped.
    constexpr std::string_view kBeforeItems = R"("output":[)";
    const size_t begin = made.find(kBeforeItems) + kBeforeItems.size();
    for (api::StoredItem& item : stored.items) item.begin += begin;
    stored.messages.push_back(std::move(answer_));
    form().response->keep(form().id, std::move(stored));
  }
  return made;
}

void ResponsesRenderer::write_end(std::span<const Choice> choices, std::string& events) {
  const Choice& choice = choices.front();
  const std::string made = end(choice, events);
  write(is_whole(choice) ? "response.completed" : "response.incomplete", R"("response":)" + made,
        events);
}

// Without the request's settings, so that it is short: the error may be that memory has run out.
void ResponsesRenderer::write_error(const api::ApiError& error, std::string& events) {
  const auto failed = [&](std::string_view status, const std::string& why) {
    return R"("response":{"id":)" + json_text_of(form().id) +
           R"(,"object":"response","created_at":)" + std::to_string(form().created) +
           R"(,"status":")" + std::string(status) + R"(","error":)" + why +
           R"(,"incomplete_details":null,"model":)" + json_text_of(form().model) +
           R"(,"output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],)"
           R"("usage":null})";
  };
  if (!std::exchange(started_, true)) {
    write("response.created", failed("in_progress", "null"), events);
  }
  const std::string why = R"({"code":)" +
                          json_text_of(error.code.empty() ? error.type : error.code) +
                          R"(,"message":)" + json_text_of(error.message) + '}';
  write("response.failed", failed("failed", why), events);
}

std::string ResponsesRenderer::body(std::span<Choice> choices) {
  // The output items are collected while events are written, so the events are written here too and dropped.
  std::string events;
  write_events(choices.front().news, events);
  events.clear();
  return end(choices.front(), events);
}

}  // namespace

std::unique_ptr<Renderer> make_responses_renderer(api::ShownForm form,
                                                  const text::Tokenizer& tokenizer) {
  return std::make_unique<ResponsesRenderer>(std::move(form), tokenizer);
}

}  // namespace fathom::answer
