#include "text/output_parser.h"

#include <algorithm>
#include <utility>

#include "text/chat_markup.h"

namespace fathom::text {
namespace {

using Place = ToolCallMatcher::Place;

}  // namespace

OutputParser::OutputParser(ChatFormat format, Options options)
    : options_(options),
      form_(options.tools ? tool_call_form(format) : nullptr),
      state_(options.reasoning ? State::kStart : State::kContent),
      think_begin_({markup::kThinkBegin}),
      reasoning_markers_({markup::kThinkEnd}),
      matcher_(form_ ? form_->steps : std::span<const CallStep>()) {
  if (options.tools && writes_dsml(format)) {
    dsml_.emplace(options.calls);
    markers_.add(markup::kThinkEnd);
  }
  if (form_ == nullptr) return;
  for (const std::string_view marker : form_->markers()) {
    reasoning_markers_.add(marker);
    markers_.add(marker);
    guard_.add(marker);
  }
}

void OutputParser::push(std::string_view bytes, Events& out) {
  FATHOM_CHECK(!is_finished_, "push after finish");
  while (!bytes.empty()) {
    // What cannot begin a marker is text at once.
    const bool is_plain = reads_markers() && pending_.empty() && bytes.front() != '<';
    const size_t num_taken = is_plain ? std::min(bytes.find('<'), bytes.size()) : 1;
    if (is_plain) {
      take_text(bytes.substr(0, num_taken), out);
    } else {
      step(bytes.front(), out);
    }
    bytes.remove_prefix(num_taken);
  }
}

void OutputParser::finish(Events& out) {
  FATHOM_CHECK(!is_finished_, "finish called twice");
  is_finished_ = true;
  if (!pending_.empty() && !drops_cut_marker()) take_text(std::exchange(pending_, {}), out);
  switch (state_) {
    case State::kStart:
      emit(options_.starts_in_reasoning ? Kind::kReasoning : Kind::kContent, held_, out);
      break;
    case State::kReasoning:
      emit(Kind::kReasoning, held_, out);
      break;
    case State::kCallHead:
      held_.clear();  // a name that was cut off is nobody's
      end_head(out);
      break;
    case State::kArguments:
    case State::kBrokenArguments:
      end_call(/*is_complete=*/false, out);
      break;
    default:
      break;  // nothing is held but white space and markup
  }
  if (dsml_) dsml_->finish(out);
}

// Whether the output's last bytes, which may begin a marker, are taken for one that was cut off.
bool OutputParser::drops_cut_marker() const {
  if (form_ == nullptr) return false;
  switch (state_) {
    case State::kGap:
    case State::kCallHead:
    case State::kBrokenArguments:
    case State::kCallTail:
      return true;
    case State::kArguments:
      return !matcher_.in_string();
    default:
      break;
  }
  // "<" and "<|" also end texts that speak of no tools.
  const size_t num_bracket_bytes = form_->section_begin.find("tool");
  return pending_.size() > num_bracket_bytes &&
         form_->section_begin.starts_with(pending_.substr(0, num_bracket_bytes + 1));
}

void OutputParser::step(char c, Events& out) {
  if (state_ == State::kStart) return step_start(c, out);
  if (state_ == State::kThinkOpened) {
    state_ = State::kReasoning;
    if (c == '\n') return;
  } else if (state_ == State::kThinkClosed) {
    if (c == '\n' && ++num_newlines_ <= kMaxBreaksBehindReasoning) return;
    state_ = State::kContent;
  }
  pending_ += c;
  if (scanner().push(c)) {
    pending_.clear();
    return take_marker(scanner().marker(), out);
  }
  const size_t num_text = pending_.size() - scanner().num_pending();
  if (num_text == 0) return;
  const std::string text = pending_.substr(0, num_text);
  pending_.erase(0, num_text);
  take_text(text, out);
}

void OutputParser::step_start(char c, Events& out) {
  held_ += c;
  bool is_found = false;
  const bool is_gap = push_into_gap(think_begin_, c, is_found) && held_.size() <= kMaxLeadingBytes;
  if (is_found) {
    held_.clear();
    state_ = State::kThinkOpened;
  } else if (!is_gap) {
    // Once, and at most kMaxLeadingBytes + 1 bytes: they may begin a marker of the next state.
    state_ = options_.starts_in_reasoning ? State::kReasoning : State::kContent;
    for (const char held : std::exchange(held_, {})) step(held, out);
  }
}

void OutputParser::take_text(std::string_view text, Events& out) {
  for (; !text.empty(); text.remove_prefix(1)) {
    switch (state_) {
      case State::kReasoning:
        return take_reasoning(text, out);
      case State::kBrokenArguments:
        return emit(Kind::kToolCallArguments, text, out);
      case State::kGap:
        take_gap(text.front(), out);
        break;
      case State::kCallHead:
      case State::kArguments:
      case State::kCallTail:
        take_call_byte(text.front(), out);
        break;
      default:
        return emit(Kind::kContent, text, out);
    }
  }
}

// The last newline may belong to </think>.
void OutputParser::take_reasoning(std::string_view text, Events& out) {
  emit(Kind::kReasoning, std::exchange(held_, {}), out);
  if (text.ends_with('\n')) {
    held_ = "\n";
    text.remove_suffix(1);
  }
  emit(Kind::kReasoning, text, out);
  if (!dsml_ || !dsml_->has_ended_reasoning()) return;
  state_ = State::kContent;
  awaits_think_end_ = true;
  emit(Kind::kContent, std::exchange(held_, {}), out);
}

void OutputParser::take_gap(char c, Events& out) {
  held_ += c;
  if (!is_json_space(c) || held_.size() > kMaxHeldBytes) emit_held(out);
}

void OutputParser::take_call_byte(char c, Events& out) {
  // Around the arguments '<' only begins markers, and this one began none.
  const bool is_stray = c == '<' && state_ != State::kArguments;
  const Place place = is_stray ? Place::kFailed : matcher_.push(c);
  const std::string_view byte(&c, 1);
  if (place == Place::kArguments || place == Place::kArgumentsEnd) {
    if (state_ == State::kCallHead) begin_call(out);
    emit(Kind::kToolCallArguments, byte, out);
    if (place == Place::kArgumentsEnd) {
      end_call(/*is_complete=*/true, out);
      state_ = State::kCallTail;
    }
  } else if (state_ == State::kArguments) {
    state_ = State::kBrokenArguments;
    emit(Kind::kToolCallArguments, byte, out);
  } else {
    held_ += c;
    if (place == Place::kFailed || held_.size() > kMaxHeldBytes) emit_held(out);
  }
}

void OutputParser::take_marker(std::string_view marker, Events& out) {
  if (state_ == State::kReasoning) {
    if (marker == markup::kThinkEnd) close_reasoning(out);
  } else if (dsml_) {
    take_late_think_end(out);
  } else if (!is_part_of_call(marker, out)) {
    enter_after(marker);
  }
}

// The call being read takes the marker, or is over.
bool OutputParser::is_part_of_call(std::string_view marker, Events& out) {
  switch (state_) {
    case State::kCallHead:
      for (const char c : marker) {
        if (matcher_.push(c) != Place::kFailed) continue;
        end_head(out);
        return false;
      }
      return true;
    case State::kArguments:
      if (matcher_.in_string()) {
        for (const char c : marker) matcher_.push(c);
        emit(Kind::kToolCallArguments, marker, out);
        return true;
      }
      end_call(/*is_complete=*/false, out);
      return false;
    case State::kBrokenArguments:
      end_call(/*is_complete=*/false, out);
      return false;
    default:
      held_.clear();  // white space or markup
      return false;
  }
}

void OutputParser::enter_after(std::string_view marker) {
  if (marker == form_->section_begin) in_section_ = options_.calls;
  if (marker == form_->section_end) in_section_ = false;
  state_ = State::kContent;
  if (!in_section_) return;
  if (marker == form_->section_begin || marker == form_->call_end) state_ = State::kGap;
  if (marker == form_->call_begin) {
    matcher_ = ToolCallMatcher(form_->steps);
    state_ = State::kCallHead;
  }
}

// Behind a call that ended the reasoning the marker ends nothing any more.
void OutputParser::take_late_think_end(Events& out) {
  if (!awaits_think_end_ || dsml_->in_call()) {
    return emit(Kind::kContent, markup::kThinkEnd, out);
  }
  awaits_think_end_ = false;
  num_newlines_ = 0;
  state_ = State::kThinkClosed;
}

void OutputParser::close_reasoning(Events& out) {
  held_.clear();  // the newline before the marker belongs to it
  if (dsml_) dsml_->end_reasoning(out);
  num_newlines_ = 0;
  guard_.reset();
  state_ = State::kThinkClosed;
}

void OutputParser::begin_call(Events& out) {
  held_.clear();
  out.push_back({Kind::kToolCallBegin, matcher_.name(), num_calls_++, matcher_.id()});
  state_ = State::kArguments;
}

// There are no arguments: a call without them if it has a name, else text.
void OutputParser::end_head(Events& out) {
  if (!matcher_.has_name()) return emit_held(out);
  begin_call(out);
  end_call(/*is_complete=*/false, out);
}

void OutputParser::end_call(bool is_complete, Events& out) {
  out.push_back({Kind::kToolCallEnd, {}, num_calls_ - 1, {}, is_complete});
}

void OutputParser::emit_held(Events& out) {
  state_ = State::kContent;
  emit(Kind::kContent, std::exchange(held_, {}), out);
}

void OutputParser::emit(Kind kind, std::string_view text, Events& out) {
  if (dsml_) return dsml_->push(kind, text, out);
  if (form_ != nullptr && kind != Kind::kToolCallArguments) return emit_guarded(kind, text, out);
  append(kind, text, out);
}

// A marker that was left out may have stood between the halves of another one: the byte that would complete
// it stays out too.
void OutputParser::emit_guarded(Kind kind, std::string_view text, Events& out) {
  while (!text.empty()) {
    const bool is_plain = guard_.num_pending() == 0 && text.front() != '<';
    const size_t num_taken = is_plain ? std::min(text.find('<'), text.size()) : 1;
    MarkerScanner next = guard_;
    if (is_plain || !next.push(text.front())) {
      guard_ = next;
      append(kind, text.substr(0, num_taken), out);
    }
    text.remove_prefix(num_taken);
  }
}

void OutputParser::append(Kind kind, std::string_view text, Events& out) const {
  if (text.empty()) return;
  if (out.empty() || out.back().kind != kind) {
    out.push_back({.kind = kind, .index = kind == Kind::kToolCallArguments ? num_calls_ - 1 : -1});
  }
  out.back().text += text;
}

}  // namespace fathom::text
