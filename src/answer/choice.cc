#include "answer/choice.h"

#include <algorithm>
#include <utility>

#include "text/chat_markup.h"

namespace fathom::answer {
namespace {

using Kind = text::OutputEvent::Kind;
using text::markup::kThinkEnd;

Finish finish_of(core::FinishReason reason) {
  switch (reason) {
    case core::FinishReason::kLength:
      return Finish::kLength;
    case core::FinishReason::kCancelled:
      return Finish::kAbort;
    default:
      return Finish::kStop;
  }
}

// Reasoning, content and arguments: several events of one kind in a row are pieces of one text.
bool is_text(Kind kind) { return kind != Kind::kToolCallBegin && kind != Kind::kToolCallEnd; }

}  // namespace

Choice::Choice(ChoiceSetup setup)
    : setup_(std::move(setup)),
      detokenizer_(*setup_.tokenizer, setup_.skip_special_tokens),
      matcher_(setup_.stop),
      in_reasoning_(setup_.starts_in_reasoning) {
  counts_.prompt_tokens = setup_.prompt_tokens;
  if (setup_.stops_wait) reasoning_.emplace(setup_.starts_in_reasoning, setup_.calls_end_reasoning);
}

bool Choice::push(std::span<const core::SampledToken> tokens, bool last_is_stop_token) {
  if (finished() || has_stopped()) return false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i].token;
    const bool is_engines_stop = last_is_stop_token && i + 1 == tokens.size();
    stop_token_found_ = !is_engines_stop && is_stop_token(token);
    const bool is_hidden =
        (is_engines_stop || stop_token_found_) && !setup_.no_stop_trim && !ends_reasoning(token);
    news.tokens.push_back(tokens[i]);
    ++counts_.completion_tokens;
    if (!is_hidden && push_token(tokens[i])) return true;
    if (!stop_token_found_) continue;
    matched_token_ = token;
    flush();
    return true;
  }
  return false;
}

bool Choice::is_stop_token(int32_t token) const {
  if (std::ranges::find(setup_.stop_token_ids, token) == setup_.stop_token_ids.end()) return false;
  if (counts_.completion_tokens < setup_.min_tokens) return false;
  // The one that ends the reasoning is of the reasoning, but whoever names it means just that end.
  return ends_reasoning(token) || !reasoning_ ||
         reasoning_->is_answer(setup_.tokenizer->token_bytes(token));
}

bool Choice::ends_reasoning(int32_t token) const {
  return reasoning_ && reasoning_->in_reasoning() && token == setup_.think_end_id;
}

bool Choice::push_token(const core::SampledToken& token) {
  if (setup_.places_tokens) unplaced_.push_back(token);
  std::string visible;
  note_structure(token.token);
  match(text_of(token.token), visible);
  show(visible);
  if (stop_string_found_ && setup_.parser) setup_.parser->finish(fresh_events_);
  if (setup_.parser) count_reasoning(token.token, fresh_events_);
  take_events();
  return stop_string_found_;
}

void Choice::match(std::string_view text, std::string& visible) {
  if (reasoning_) {
    const std::string answer = answer_part(text, visible);
    if (!stop_string_found_) find_stop(answer, visible);
  } else {
    find_stop(text, visible);
  }
}

void Choice::find_stop(std::string_view text, std::string& visible) {
  const size_t before = visible.size();
  stop_string_found_ = matcher_.push(text, visible);
  if (stop_string_found_) {
    matched_string_ = setup_.stop->strings()[static_cast<size_t>(matcher_.matched())];
    if (setup_.no_stop_trim) visible += matched_string_;
  }
  num_matched_bytes_ += visible.size() - before;
  if (stop_string_found_ && setup_.structure)
    is_cut_structure_ = !setup_.structure->is_whole_after(num_matched_bytes_);
}

// Special tokens have no text in the output, but for the markers that the parser reads.
void Choice::note_structure(int32_t token) {
  if (setup_.structure == nullptr) return;
  const bool is_hidden =
      setup_.skip_special_tokens && setup_.tokenizer->is_special(token) && !is_marker(token);
  setup_.structure->add(token, is_hidden ? 0 : setup_.tokenizer->token_bytes(token).size());
}

bool Choice::is_marker(int32_t token) const {
  return setup_.marker_ids != nullptr && std::ranges::count(*setup_.marker_ids, token) > 0;
}

std::string Choice::answer_part(std::string_view text, std::string& visible) {
  std::string answer;
  const size_t before = visible.size();
  reasoning_->push(text, visible, answer);
  num_matched_bytes_ += visible.size() - before;
  // Whoever stops at </think> means the end of the reasoning.
  const bool stops_here =
      reasoning_->has_just_ended() && setup_.stop != nullptr &&
      std::ranges::find(setup_.stop->strings(), kThinkEnd) != setup_.stop->strings().end();
  if (stops_here) {
    stop_string_found_ = true;
    matched_string_ = kThinkEnd;
  }
  return answer;
}

std::string Choice::text_of(int32_t token) {
  if (is_marker(token) && setup_.tokenizer->is_special(token)) {
    return detokenizer_.finish() + std::string(setup_.tokenizer->token_bytes(token));
  }
  return detokenizer_.push(token);
}

void Choice::show(std::string_view text) {
  if (text.empty()) return;
  if (setup_.parser) {
    setup_.parser->push(text, fresh_events_);
  } else {
    news.text += text;
  }
}

void Choice::take_events() {
  size_t num_text_bytes = 0, text_idx = 0;
  for (text::OutputEvent& event : fresh_events_) {
    if (event.kind == Kind::kReasoning && !setup_.shows_reasoning) continue;
    if (event.kind == Kind::kContent) num_text_bytes += event.text.size();
    const bool continues =
        !news.events.empty() && is_text(event.kind) && news.events.back().kind == event.kind;
    if (continues) {
      news.events.back().text += event.text;
    } else {
      news.events.push_back(std::move(event));
    }
    if (news.events.back().kind == Kind::kContent) text_idx = news.events.size() - 1;
  }
  if (setup_.places_tokens && !fresh_events_.empty()) place_tokens(num_text_bytes, text_idx);
  fresh_events_.clear();
}

void Choice::place_tokens(size_t num_text_bytes, size_t event_idx) {
  size_t first = unplaced_.size(), num_bytes = 0;
  while (first > 0 && num_bytes < num_text_bytes) {
    num_bytes += setup_.tokenizer->token_bytes(unplaced_[--first].token).size();
  }
  for (size_t i = first; i < unplaced_.size(); ++i) {
    news.placed.push_back({.token = std::move(unplaced_[i]), .event_idx = event_idx});
  }
  unplaced_.clear();
}

// A token is reasoning when what it showed is, or when it showed nothing while the reasoning goes on: the
// end marker counts, and so do tokens before the first reasoning (the begin marker).
void Choice::count_reasoning(int32_t token, std::span<const text::OutputEvent> events) {
  if (!events.empty()) {
    const bool begins = !saw_event_ && events.front().kind == Kind::kReasoning && !in_reasoning_;
    if (begins) counts_.reasoning_tokens = counts_.completion_tokens - 1;
    saw_event_ = true;
    const bool was_in_reasoning = in_reasoning_;
    in_reasoning_ = events.back().kind == Kind::kReasoning;
    const bool ends_it = was_in_reasoning && token == setup_.think_end_id;
    if (in_reasoning_ || ends_it) ++counts_.reasoning_tokens;
  } else if (in_reasoning_) {
    ++counts_.reasoning_tokens;
  }
  if (token == setup_.think_end_id) in_reasoning_ = false;
}

void Choice::end(const engine::RequestEnd& end) {
  if (finished()) return;
  if (!has_stopped()) flush();
  counts_.cached_tokens = end.num_cached_tokens;
  counts_.retractions = end.num_retractions;
  counts_.speculation = end.speculation;
  if (has_stopped()) {
    finish_ = Finish::kStop;
  } else {
    finish_ = finish_of(end.reason);
    if (finish_ == Finish::kStop) matched_token_ = end.matched_stop_token;
  }
}

void Choice::flush() {
  std::string visible;
  match(detokenizer_.finish(), visible);
  if (reasoning_ && !stop_string_found_) {
    std::string answer;
    reasoning_->finish(answer);
    find_stop(answer, visible);
  }
  if (!stop_string_found_) matcher_.finish(visible);
  show(visible);
  if (setup_.parser) setup_.parser->finish(fresh_events_);
  take_events();
}

}  // namespace fathom::answer
