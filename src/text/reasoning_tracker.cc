#include "text/reasoning_tracker.h"

#include "text/chat_markup.h"
#include "text/output_parser.h"

namespace fathom::text {

ReasoningTracker::ReasoningTracker(bool starts_in_reasoning, bool calls_end_it)
    : calls_end_it_(calls_end_it),
      place_(starts_in_reasoning ? Place::kReasoning : Place::kStart),
      scanner_({markup::kThinkBegin}) {
  if (starts_in_reasoning) scanner_ = ends();
}

MarkerScanner ReasoningTracker::ends() const {
  MarkerScanner scanner({markup::kThinkEnd});
  if (!calls_end_it_) return scanner;
  for (const std::string_view begin :
       {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\""}) {
    scanner.add(begin);
  }
  return scanner;
}

void ReasoningTracker::push(std::string_view bytes, std::string& before, std::string& answer) {
  has_just_ended_ = false;
  while (!bytes.empty() && place_ != Place::kAnswer) {
    step(bytes.front(), before, answer);
    bytes.remove_prefix(1);
  }
  answer += bytes;
}

void ReasoningTracker::finish(std::string& answer) {
  answer += held_;
  held_.clear();
}

bool ReasoningTracker::is_answer(std::string_view bytes) const {
  ReasoningTracker next = *this;
  std::string before, answer;
  next.push(bytes, before, answer);
  return !answer.empty() || place_ == Place::kAnswer;
}

void ReasoningTracker::step(char c, std::string& before, std::string& answer) {
  switch (place_) {
    case Place::kStart:
      return step_start(c, before, answer);
    case Place::kReasoning:
      before += c;
      if (!scanner_.push(c)) return;
      has_just_ended_ = scanner_.marker() == markup::kThinkEnd;
      place_ = has_just_ended_ ? Place::kClosed : Place::kAnswer;
      return;
    case Place::kClosed:
      if (c == '\n' && ++num_newlines_ <= OutputParser::kMaxBreaksBehindReasoning) {
        before += c;
        return;
      }
      place_ = Place::kAnswer;
      answer += c;
      return;
    case Place::kAnswer:
      answer += c;
      return;
  }
}

void ReasoningTracker::step_start(char c, std::string& before, std::string& answer) {
  held_ += c;
  bool is_found = false;
  const bool is_gap = push_into_gap(scanner_, c, is_found);
  if (!is_found && is_gap && held_.size() <= OutputParser::kMaxLeadingBytes) return;
  place_ = is_found ? Place::kReasoning : Place::kAnswer;
  if (is_found) scanner_ = ends();
  (is_found ? before : answer) += held_;
  held_.clear();
}

}  // namespace fathom::text
