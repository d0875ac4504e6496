#include "text/tool_call_form.h"

#include <algorithm>
#include <array>

#include "text/chat_markup.h"

namespace fathom::text {
namespace {

using Kind = CallStep::Kind;

constexpr std::array<CallStep, 11> kFencedSteps = {{{Kind::kLiteral, "function"},
                                                    {Kind::kLiteral, markup::kSep},
                                                    {Kind::kName},
                                                    {Kind::kSpace},
                                                    {Kind::kLiteral, "```json"},
                                                    {Kind::kSpace},
                                                    {Kind::kObject},
                                                    {Kind::kSpace},
                                                    {Kind::kLiteral, "```"},
                                                    {Kind::kSpace},
                                                    {Kind::kLiteral, markup::kCallEnd}}};

constexpr std::array<CallStep, 6> kBareSteps = {{{Kind::kName},
                                                 {Kind::kLiteral, markup::kSep},
                                                 {Kind::kSpace},
                                                 {Kind::kObject},
                                                 {Kind::kSpace},
                                                 {Kind::kLiteral, markup::kCallEnd}}};

constexpr std::array<CallStep, 8> kKimiSteps = {{{Kind::kSpace},
                                                 {Kind::kCallId},
                                                 {Kind::kSpace},
                                                 {Kind::kLiteral, markup::kKimiArgumentBegin},
                                                 {Kind::kSpace},
                                                 {Kind::kObject},
                                                 {Kind::kSpace},
                                                 {Kind::kLiteral, markup::kKimiCallEnd}}};

const ToolCallForm kFenced = {markup::kCallsBegin, markup::kCallsEnd, markup::kCallBegin,
                              markup::kCallEnd,    markup::kSep,      kFencedSteps};
const ToolCallForm kBare = {markup::kCallsBegin, markup::kCallsEnd, markup::kCallBegin,
                            markup::kCallEnd,    markup::kSep,      kBareSteps};
const ToolCallForm kKimi = {markup::kKimiSectionBegin,  markup::kKimiSectionEnd,
                            markup::kKimiCallBegin,     markup::kKimiCallEnd,
                            markup::kKimiArgumentBegin, kKimiSteps};

}  // namespace

const ToolCallForm* tool_call_form(ChatFormat format) {
  switch (format) {
    case ChatFormat::kV3:
    case ChatFormat::kV3_0324:
    case ChatFormat::kV3Tools:
    case ChatFormat::kR1:
    case ChatFormat::kR1_0528:
    case ChatFormat::kR1Tools:
      return &kFenced;
    case ChatFormat::kV31:
      return &kBare;
    case ChatFormat::kKimiK2:
      return &kKimi;
    case ChatFormat::kV2:
    case ChatFormat::kV32:
    case ChatFormat::kMoonlight:
      return nullptr;
  }
  FATHOM_CHECK(false, "chat format " << static_cast<int>(format));
}

bool writes_dsml(ChatFormat format) { return format == ChatFormat::kV32; }

ToolCallMatcher::Place ToolCallMatcher::push(char c) {
  const bool had_ended = arguments_ended_;
  Taken taken = Taken::kNo;
  while (taken == Taken::kNo) taken = take(steps_[step_idx_], c);
  if (taken == Taken::kFailed) return Place::kFailed;
  if (step_idx_ == steps_.size()) return Place::kMatched;
  if (arguments_ended_) return had_ended ? Place::kAfter : Place::kArgumentsEnd;
  return has_arguments_ ? Place::kArguments : Place::kBefore;
}

void ToolCallMatcher::next_step() {
  ++step_idx_;
  literal_pos_ = 0;
}

ToolCallMatcher::Taken ToolCallMatcher::take(const CallStep& step, char c) {
  switch (step.kind) {
    case Kind::kLiteral:
      if (c != step.literal[literal_pos_]) return Taken::kFailed;
      if (++literal_pos_ == step.literal.size()) next_step();
      return Taken::kYes;
    case Kind::kSpace:
      if (is_json_space(c)) return Taken::kYes;
      next_step();
      return Taken::kNo;
    case Kind::kName:
    case Kind::kCallId:
      return take_name(step, c);
    case Kind::kObject: {
      const JsonObjectMachine::State state = json_.push(c);
      if (state == JsonObjectMachine::State::kFailed) return Taken::kFailed;
      has_arguments_ = true;
      arguments_ended_ = state == JsonObjectMachine::State::kDone;
      if (arguments_ended_) next_step();
      return Taken::kYes;
    }
  }
  FATHOM_CHECK(false, "call step " << static_cast<int>(step.kind));
}

ToolCallMatcher::Taken ToolCallMatcher::take_name(const CallStep& step, char c) {
  const bool is_id = step.kind == Kind::kCallId;
  std::string& read = is_id ? id_ : name_;
  if (is_name_byte(c) || (is_id && c == ':')) {
    read += c;
    return read.size() <= kMaxNameBytes ? Taken::kYes : Taken::kFailed;
  }
  if (is_id && !split_call_id()) return Taken::kFailed;
  if (!is_function_name(name_)) return Taken::kFailed;
  has_name_ = true;
  next_step();
  return Taken::kNo;
}

// functions.NAME:INDEX; some models leave "functions." out.
bool ToolCallMatcher::split_call_id() {
  const size_t colon = id_.rfind(':');
  if (colon == std::string::npos || colon + 1 == id_.size()) return false;
  const std::string_view index = std::string_view(id_).substr(colon + 1);
  if (!std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; })) return false;
  constexpr std::string_view kPrefix = "functions.";
  name_ = id_.substr(0, colon);
  if (name_.starts_with(kPrefix)) name_.erase(0, kPrefix.size());
  return true;
}

}  // namespace fathom::text
