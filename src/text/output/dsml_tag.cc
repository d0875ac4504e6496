#include "text/output/dsml_tag.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/output/json_object_machine.h"

namespace fathom::text {
namespace {

using TagKind = DsmlTag::Kind;

// V3.2 was trained on function_calls; what models write in its place means the same.
constexpr std::array<std::pair<std::string_view, TagKind>, 5> kWords = {{
    {"function_calls", TagKind::kSection},
    {"tool_calls", TagKind::kSection},
    {"calls", TagKind::kSection},
    {"invoke", TagKind::kInvoke},
    {"parameter", TagKind::kParameter},
}};

bool is_word_byte(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

// "｜D": what comes before may begin many a text.
constexpr size_t kTellingBytes = 4;

}  // namespace

void DsmlScanner::forget() {
  step_ = Step::kNone;
  held_.clear();
  num_matched_ = num_sure_ = 0;
}

DsmlScanner::Found DsmlScanner::push(char c) {
  if (step_ == Step::kDone) forget();
  if (step_ == Step::kNone) {
    if (c != '<' && c != kDsmlMark.front()) return Found::kText;
    tag_ = {};
    step_ = Step::kMark;
    num_matched_ = c == '<' ? 0 : 1;
    held_ = c;
    return Found::kHeld;
  }
  const Step next = next_step(c);
  if (next == Step::kFailed || held_.size() == kMaxTagBytes) return Found::kBroken;
  step_ = next;
  held_ += c;
  if (next == Step::kWord && num_sure_ == 0) num_sure_ = held_.size();
  if (next == Step::kBare) num_sure_ = held_.size();
  return next == Step::kDone ? Found::kTag : Found::kHeld;
}

size_t DsmlScanner::num_markup(bool is_end_of_output) const {
  if (num_sure_ > 0) return is_end_of_output ? held_.size() : num_sure_;
  return is_end_of_output && num_matched_ >= kTellingBytes ? held_.size() : 0;
}

DsmlScanner::Step DsmlScanner::next_step(char c) {
  switch (step_) {
    case Step::kMark:
      return step_mark(c);
    case Step::kWord:
      return step_word(c);
    case Step::kGap:
      return step_gap(c);
    case Step::kAttribute:
      if (c == '=') return Step::kQuote;
      attribute_ += c;
      return is_word_byte(c) ? Step::kAttribute : Step::kFailed;
    case Step::kQuote:
      if (c != '"') return Step::kFailed;
      value_.clear();
      num_sure_ = held_.size() + 1;
      return Step::kValue;
    case Step::kValue:
      if (c == '"') return Step::kValueEnd;
      if (c == '\n') return Step::kFailed;
      value_ += c;
      return Step::kValue;
    case Step::kValueEnd:
      return step_value_end(c);
    case Step::kClosing:
      return c == '>' ? Step::kDone : Step::kFailed;
    case Step::kNone:
    case Step::kBare:
    case Step::kDone:
    case Step::kFailed:
      break;
  }
  return Step::kFailed;
}

DsmlScanner::Step DsmlScanner::step_mark(char c) {
  if (held_ == "<" && c == '/') {
    tag_.is_end = true;
    return Step::kMark;
  }
  if (c != kDsmlMark[num_matched_]) return Step::kFailed;
  if (++num_matched_ < kDsmlMark.size()) return Step::kMark;
  word_.clear();
  return held_.front() == '<' ? Step::kWord : Step::kBare;
}

DsmlScanner::Step DsmlScanner::step_word(char c) {
  if (is_word_byte(c)) {
    word_ += c;
    const bool is_begun = std::ranges::any_of(
        kWords, [&](const auto& known) { return known.first.starts_with(word_); });
    return is_begun ? Step::kWord : Step::kFailed;
  }
  // "<｜DSML｜ calls>" is V4.1's spelling.
  if (word_.empty()) return c == ' ' ? Step::kWord : Step::kFailed;
  const auto* const known = std::ranges::find(kWords, std::string_view(word_),
                                              &std::pair<std::string_view, TagKind>::first);
  if (known == kWords.end()) return Step::kFailed;
  tag_.kind = known->second;
  num_sure_ = held_.size();
  return step_gap(c);
}

DsmlScanner::Step DsmlScanner::step_gap(char c) {
  if (is_json_space(c)) return Step::kGap;
  if (c == '>') return Step::kDone;
  if (c == '/') {
    tag_.is_empty = true;
    return Step::kClosing;
  }
  attribute_ = c;
  return is_word_byte(c) ? Step::kAttribute : Step::kFailed;
}

// A name may hold quotation marks: the last one stands before what an attribute can be followed by.
DsmlScanner::Step DsmlScanner::step_value_end(char c) {
  if (is_json_space(c) || c == '>' || c == '/') {
    end_attribute();
    num_sure_ = held_.size();
    return step_gap(c);
  }
  value_ += '"';
  if (c == '"') return Step::kValueEnd;
  if (c == '\n') return Step::kFailed;
  value_ += c;
  return Step::kValue;
}

void DsmlScanner::end_attribute() {
  if (attribute_ == "name") tag_.name = value_;
  if (attribute_ == "string") tag_.is_string = value_ == "true";
}

}  // namespace fathom::text
