#include "answer/responses_renderer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "answer/draw_id.h"
#include "answer/json_text.h"
#include "api/response_draft.h"

namespace fathom::answer {
namespace {

std::string json_text_of(std::string_view text) {
  std::string out;
  append_json(out, text);
  return out;
}

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

// An item of the output while it is written.
struct OutputItem {
  text::OutputEvent::Kind kind = text::OutputEvent::Kind::kContent;  // kToolCallBegin for a call
  std::string id, call_id, name;                                     // the latter two of a call
  std::string text;                                                  // or arguments

  bool is_call() const { return kind == text::OutputEvent::Kind::kToolCallBegin; }
  bool is_reasoning() const { return kind == text::OutputEvent::Kind::kReasoning; }

  std::string part(std::string_view shown) const {
    if (is_reasoning()) return R"({"type":"reasoning_text","text":)" + json_text_of(shown) + '}';
    return R"({"type":"output_text","text":)" + json_text_of(shown) +
           R"(,"annotations":[],"logprobs":[]})";
  }

  // The item with its text, or, with is_begin, as it is announced: empty.
  std::string json(std::string_view status, bool is_begin) const {
    std::string out = R"({"id":)" + json_text_of(id);
    if (is_call()) {
      out += R"(,"type":"function_call","call_id":)" + json_text_of(call_id);
      out += R"(,"name":)" + json_text_of(name);
      out += R"(,"arguments":)" + json_text_of(is_begin ? std::string_view() : text);
    } else {
      out += is_reasoning() ? R"(,"type":"reasoning","summary":[],"content":[)"
                            : R"(,"type":"message","role":"assistant","content":[)";
      if (!is_begin) out += part(text);
      out += ']';
    }
    out += R"(,"status":")";
    out += status;
    out += "\"}";
    return out;
  }
};

class ResponsesRenderer : public Renderer {
  using Kind = text::OutputEvent::Kind;

 public:
  explicit ResponsesRenderer(AnswerHead head) : head_(std::move(head)) {
    answer_.role = "assistant";
  }

  void write_begin(std::span<Choice> /*choices*/, std::string& events) override {
    write_start(events);
  }
  void write_news(Choice& choice, std::string& events) override;
  void write_end(std::span<const Choice> choices, std::string& events) override;
  void write_error(const api::ApiError& error, std::string& events) override;
  std::string body(std::span<Choice> choices) override;

 private:
  void write(std::string_view type, std::string_view members, std::string& events);
  void write_start(std::string& events);
  void write_output(const text::OutputEvent& event, std::string& events);
  void write_text(Kind kind, std::string_view text, std::string& events);
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

  AnswerHead head_;
  bool started_ = false;
  int64_t sequence_number_ = 0;
  int num_items_ = 0;  // that are done
  std::string items_;  // those, as JSON
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
  events += ',';
  events += members;
  events += "}\n\n";
}

std::string ResponsesRenderer::response(std::string_view status, std::string_view details,
                                        const ChoiceCounts* counts) const {
  std::string out = R"({"id":)" + json_text_of(head_.id);
  out += R"(,"object":"response","created_at":)";
  append_json(out, head_.created);
  out += R"(,"status":")";
  out += status;
  out += R"(","error":null,"incomplete_details":)";
  out += details;
  out += R"(,"model":)";
  append_json(out, head_.model);
  out += R"(,"output":[)";
  out += items_;
  out += R"(],"usage":)";
  if (counts != nullptr) {
    append_response_usage(out, *counts);
  } else {
    out += "null";
  }
  out += ',';
  out += head_.response->settings;
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
  const std::string text = json_text_of(open_->text);
  if (open_->is_call()) {
    write("response.function_call_arguments.done",
          place() + R"(,"name":)" + json_text_of(open_->name) + R"(,"arguments":)" + text, events);
  } else {
    const bool is_reasoning = open_->is_reasoning();
    write(is_reasoning ? "response.reasoning_text.done" : "response.output_text.done",
          place() + R"(,"content_index":0,"text":)" + text +
              (is_reasoning ? "" : R"(,"logprobs":[])"),
          events);
    write("response.content_part.done",
          place() + R"(,"content_index":0,"part":)" + open_->part(open_->text), events);
  }
  const std::string item = open_->json(status, /*is_begin=*/false);
  write("response.output_item.done",
        R"("output_index":)" + std::to_string(num_items_) + R"(,"item":)" + item, events);
  if (num_items_++ > 0) items_ += ',';
  items_ += item;
  keep_of(*open_);
  open_.reset();
}

void ResponsesRenderer::keep_of(const OutputItem& item) {
  if (item.is_call()) {
    answer_.tool_calls.push_back({.id = item.call_id, .name = item.name, .arguments = item.text});
  } else if (!item.is_reasoning()) {
    if (!answer_.content) answer_.content.emplace();
    *answer_.content += item.text;
  }
}

void ResponsesRenderer::write_text(Kind kind, std::string_view text, std::string& events) {
  if (text.empty()) return;
  const bool is_reasoning = kind == Kind::kReasoning;
  if (!open_ || open_->kind != kind) {
    open_item({.kind = kind,
               .id = draw_id(is_reasoning ? "rs_" : "msg_"),
               .call_id = "",
               .name = "",
               .text = ""},
              events);
  }
  open_->text += text;
  write(is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
        place() + R"(,"content_index":0,"delta":)" + json_text_of(text) +
            (is_reasoning ? "" : R"(,"logprobs":[])"),
        events);
}

void ResponsesRenderer::write_output(const text::OutputEvent& event, std::string& events) {
  switch (event.kind) {
    case Kind::kReasoning:
    case Kind::kContent:
      return write_text(event.kind, event.text, events);
    case Kind::kToolCallBegin:
      return open_item({.kind = event.kind,
                        .id = draw_id("fc_"),
                        .call_id = event.id.empty() ? draw_id("call_") : event.id,
                        .name = event.text,
                        .text = ""},
                       events);
    case Kind::kToolCallArguments:
      open_->text += event.text;
      return write("response.function_call_arguments.delta",
                   place() + R"(,"delta":)" + json_text_of(event.text), events);
    case Kind::kToolCallEnd:
      return close_item(event.is_complete ? "completed" : "incomplete", events);
  }
}

void ResponsesRenderer::write_news(Choice& choice, std::string& events) {
  ChoiceNews& news = choice.news;
  if (news.empty() && !choice.finished()) return;
  write_start(events);
  for (const text::OutputEvent& event : news.events) write_output(event, events);
  write_text(Kind::kContent, news.text, events);
  news = {};
}

std::string ResponsesRenderer::end(const Choice& choice, std::string& events) {
  const bool is_complete = choice.finish() == Finish::kStop;
  close_item(is_complete ? "completed" : "incomplete", events);
  const std::string_view details = is_complete ? "null"
                                   : choice.finish() == Finish::kLength
                                       ? R"({"reason":"max_output_tokens"})"
                                       : R"({"reason":"abort"})";
  std::string made = response(is_complete ? "completed" : "incomplete", details, &choice.counts());
  if (head_.response->keep) {
    if (!answer_.content && answer_.tool_calls.empty()) answer_.content = "";
    api::StoredResponse stored{.messages = std::move(head_.response->messages), .body = made};
    stored.messages.push_back(std::move(answer_));
    head_.response->keep(head_.id, std::move(stored));
  }
  return made;
}

void ResponsesRenderer::write_end(std::span<const Choice> choices, std::string& events) {
  const Choice& choice = choices.front();
  const std::string made = end(choice, events);
  write(choice.finish() == Finish::kStop ? "response.completed" : "response.incomplete",
        R"("response":)" + made, events);
}

// Without the request's settings, so that it is short: the error may be that memory has run out.
void ResponsesRenderer::write_error(const api::ApiError& error, std::string& events) {
  const auto failed = [&](std::string_view status, const std::string& why) {
    return R"("response":{"id":)" + json_text_of(head_.id) +
           R"(,"object":"response","created_at":)" + std::to_string(head_.created) +
           R"(,"status":")" + std::string(status) + R"(","error":)" + why +
           R"(,"incomplete_details":null,"model":)" + json_text_of(head_.model) +
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
  for (const text::OutputEvent& event : choices.front().news.events) {
    write_output(event, events);
    events.clear();
  }
  write_text(Kind::kContent, choices.front().news.text, events);
  return end(choices.front(), events);
}

}  // namespace

std::unique_ptr<Renderer> make_responses_renderer(AnswerHead head) {
  return std::make_unique<ResponsesRenderer>(std::move(head));
}

}  // namespace fathom::answer
