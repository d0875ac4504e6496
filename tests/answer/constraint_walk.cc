#include "tests/answer/constraint_walk.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>
#include <variant>

#include "base/token_mask.h"
#include "text/chat_markup.h"
#include "text/output_parser.h"
#include "text/tool_call_form.h"

namespace fathom::answer::tests {
namespace {

using text::OutputEvent;

constexpr int kProbesPerMask = 12;

class Walker {
 public:
  Walker(const WalkModel& model, const api::GenerationRequest& request, const WalkOptions& options)
      : tokenizer_(*model.served.tokenizer),
        vocab_size_(model.served.vocab_size),
        eos_(model.served.eos_token_ids.front()),
        options_(options),
        random_(options.seed),
        words_(static_cast<size_t>(num_mask_words(vocab_size_))) {
    api::Parsed<ConstraintPtr> made = model.factory->make(request, request.items.front());
    if (const auto* error = std::get_if<api::ApiError>(&made)) {
      walked_.problem = "refused: " + error->message;
      return;
    }
    constraint_ = std::move(std::get<ConstraintPtr>(made));
    find_words(request);
  }

  Walked run(const api::GenerationRequest& request) {
    if (constraint_ != nullptr) {
      for (const int32_t token : tokenizer_.encode(options_.prefix)) take(token);
      int num_tokens = 0;
      while (!ended_ && walked_.problem.empty()) {
        if (++num_tokens > options_.max_tokens) walked_.problem = "the output does not end";
        if (walked_.problem.empty()) take(chosen(num_tokens));
      }
    }
    read(request);
    return std::move(walked_);
  }

 private:
  // Tokens that spell a word of the chat format, whether they are markers or not: where a mask goes wrong.
  void find_words(const api::GenerationRequest& request) {
    for (const std::string_view marker : text::output_markers(request.chat.format)) {
      if (const auto id = tokenizer_.token_id(marker)) probes_.push_back(*id);
    }
    think_end_ = tokenizer_.added_token_id(text::markup::kThinkEnd).value_or(-1);
    if (text::writes_dsml(request.chat.format)) {
      const std::string end = "</" + std::string(text::markup::kDsml);
      endings_ = {end + "parameter>", "\n" + end + "invoke>", "\n" + end + "function_calls>"};
    }
    const text::ToolCallForm* const form = text::tool_call_form(request.chat.format);
    if (form == nullptr) return;
    for (const text::CallStep& step : form->steps) {
      if (const auto id = tokenizer_.token_id(step.literal)) probes_.push_back(*id);
    }
    section_end_ = tokenizer_.added_token_id(form->section_end).value_or(-1);
  }

  bool allowed(int32_t token) const { return mask_allows(words_.data(), token); }

  // Of the mask's tokens; -1: there are none.
  int32_t any_allowed() {
    const auto first = static_cast<int32_t>(random_() % static_cast<uint64_t>(vocab_size_));
    for (int32_t i = 0; i < vocab_size_;) {
      const int32_t token = (first + i) % vocab_size_;
      if (allowed(token)) return token;
      // Most words of a narrow mask are empty.
      const bool is_empty_word = token % 64 == 0 && token + 64 <= vocab_size_ &&
                                 words_[static_cast<size_t>(token / 64)] == 0;
      i += is_empty_word ? 64 : 1;
    }
    return -1;
  }

  int32_t chosen(int num_tokens) {
    constraint_->fill_mask(words_);
    check_mask();
    if (!queued_.empty()) return next_queued();
    const bool must_end = num_tokens > options_.prefer_ends;
    if ((must_end || random_() % 8 == 0) && queue_ending()) return next_queued();
    if ((must_end || random_() % 4 == 0) && allowed(eos_)) return eos_;
    // Reasoning that the walk has begun is free text: it would go on.
    if (think_end_ >= 0 && random_() % 4 == 0 && allowed(think_end_)) return think_end_;
    if (must_end && section_end_ >= 0 && allowed(section_end_)) return section_end_;
    if (must_end || random_() % 8 == 0) {
      for (const std::string_view closing : {"\"}", "\"", "}", "]", ":"}) {
        const auto id = tokenizer_.token_id(closing);
        if (id && *id < vocab_size_ && allowed(*id)) return *id;
      }
    }
    return any_allowed();
  }

  int32_t next_queued() {
    const int32_t token = queued_.front();
    queued_.erase(queued_.begin());
    return token;
  }

  // Of a form whose ends are texts of many tokens: one that is allowed here. One that stands here ended nothing: it is
  // part of a string.
  bool queue_ending() {
    for (const std::string& ending : endings_) {
      if (walked_.text.ends_with(ending)) continue;
      const std::vector<int32_t> tokens = tokenizer_.encode(ending);
      const auto copy = constraint_->clone();
      if (!std::ranges::all_of(tokens, [&](int32_t token) { return copy->accept(token); }))
        continue;
      queued_ = tokens;
      return true;
    }
    return false;
  }

  void check_mask() {
    std::vector<int32_t> tried = probes_;
    for (int i = 0; i < kProbesPerMask; ++i) tried.push_back(any_allowed());
    if (tried.back() < 0) {
      walked_.problem = "an empty mask behind: " + walked_.text;
      return;
    }
    for (const int32_t token : tried) {
      if (token >= vocab_size_ || !allowed(token) || constraint_->clone()->accept(token)) continue;
      walked_.problem =
          "the mask allows " + shown(token) + ", which is refused, behind: " + walked_.text;
      return;
    }
  }

  std::string shown(int32_t token) const {
    return std::to_string(token) + " \"" + std::string(tokenizer_.token_bytes(token)) + "\"";
  }

  void take(int32_t token) {
    if (!walked_.problem.empty()) return;
    constraint_->fill_mask(words_);
    if (!allowed(token) || !constraint_->accept(token)) {
      walked_.problem = shown(token) + " is refused behind: " + walked_.text;
      return;
    }
    ended_ = token == eos_;
    if (!ended_) walked_.text += tokenizer_.token_bytes(token);
  }

  void read(const api::GenerationRequest& request) {
    text::OutputParser parser(request.chat.format,
                              {.reasoning = request.chat.separate_reasoning,
                               .starts_in_reasoning = request.chat.starts_in_reasoning,
                               .tools = request.chat.parse_tools,
                               .calls = request.chat.parse_tools});
    std::vector<OutputEvent> events;
    parser.push(walked_.text, events);
    parser.finish(events);
    for (const OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::kReasoning) walked_.reasoning += event.text;
      if (event.kind == OutputEvent::Kind::kContent) walked_.content += event.text;
      if (event.kind == OutputEvent::Kind::kToolCallBegin)
        walked_.calls.push_back({event.text, ""});
      if (event.kind == OutputEvent::Kind::kToolCallArguments)
        walked_.calls.back().arguments += event.text;
      if (event.kind == OutputEvent::Kind::kToolCallEnd)
        walked_.calls.back().is_complete = event.is_complete;
    }
  }

  const text::Tokenizer& tokenizer_;
  const int vocab_size_;
  const int32_t eos_;
  const WalkOptions options_;
  std::mt19937_64 random_;
  std::vector<uint64_t> words_;
  std::vector<int32_t> probes_;
  int32_t section_end_ = -1, think_end_ = -1;
  std::vector<std::string> endings_;
  std::vector<int32_t> queued_;
  ConstraintPtr constraint_;
  bool ended_ = false;
  Walked walked_;
};

}  // namespace

WalkModel walk_model(std::shared_ptr<const text::Tokenizer> tokenizer, text::ChatFormat format,
                     int vocab_size) {
  WalkModel model;
  model.served.names = {"model"};
  model.served.tokenizer = tokenizer;
  model.served.chat_format = format;
  model.served.vocab_size = vocab_size;
  model.served.max_context_tokens = 1 << 20;
  model.served.eos_token_ids = {tokenizer->eos_id()};
  model.served.longest_token_bytes = api::longest_token_bytes(*tokenizer);
  model.factory = std::make_shared<ConstraintFactory>(
      ConstraintFactory::Config{.tokenizer = std::move(tokenizer),
                                .vocab_size = vocab_size,
                                .eos_token_ids = model.served.eos_token_ids});
  return model;
}

Walked walk(const WalkModel& model, const api::GenerationRequest& request,
            const WalkOptions& options) {
  return Walker(model, request, options).run(request);
}

}  // namespace fathom::answer::tests
