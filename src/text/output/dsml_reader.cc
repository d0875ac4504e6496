#include "text/output/dsml_reader.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/output/function_name.h"

namespace fathom::text {
namespace {

using State = JsonObjectMachine::State;
using TagKind = DsmlTag::Kind;

// As Python's json.dumps(text, ensure_ascii=False) writes it.
void append_escaped(char c, std::string& out) {
  static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  if (const size_t at = kEscaped.find(c); at != kEscaped.npos) {
    out += '\\';
    out += kLetters[at];
  } else if (static_cast<uint8_t>(c) < 0x20) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    out += "\\u00";
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  } else {
    out += c;
  }
}

// The machine behind the name of the only member of an object.
JsonObjectMachine at_value() {
  JsonObjectMachine machine;
  for (const char c : std::string_view("{\"\":")) machine.push(c);
  return machine;
}

bool is_whole_value(JsonObjectMachine machine) { return machine.push('}') == State::kDone; }

}  // namespace

void DsmlReader::push(Kind kind, std::string_view text, Events& out) {
  kind_ = has_ended_reasoning_ ? Kind::kContent : kind;
  while (!text.empty()) {
    // Plain text between calls, and within strings, comes out at once.
    constexpr std::string_view kStops = "<\n\xEF";
    const bool in_string = place_ == Place::kString;
    const bool in_text = place_ == Place::kText && !in_gap_ && space_.empty() && num_mark_ == 0;
    const bool is_plain = !scanner_.holds() && (in_string || in_text);
    const size_t num_plain = is_plain ? std::min(text.find_first_of(kStops), text.size()) : 0;
    if (num_plain > 0) {
      const std::string_view plain = text.substr(0, num_plain);
      in_string ? emit_quoted(plain, out) : append(plain, out);
      text.remove_prefix(num_plain);
    } else {
      step(text.front(), out);
      text.remove_prefix(1);
    }
  }
}

void DsmlReader::step(char c, Events& out) {
  // Within its strings and behind a failure JSON knows no tags.
  const bool in_json_string = (place_ == Place::kValue && value_.in_string()) ||
                              (place_ == Place::kObject && arguments_.in_string());
  if (in_json_string && !scanner_.holds()) return take({&c, 1}, out);
  switch (scanner_.push(c)) {
    case DsmlScanner::Found::kText:
      return take({&c, 1}, out);
    case DsmlScanner::Found::kHeld:
      return;
    case DsmlScanner::Found::kTag:
      take_tag(scanner_.tag(), out);
      return scanner_.forget();
    case DsmlScanner::Found::kBroken:
      take_broken_tag(out);
      return step(c, out);
  }
}

void DsmlReader::take_broken_tag(Events& out) {
  const bool is_text = place_ == Place::kText || place_ == Place::kInvoke;
  const size_t num_markup = is_text ? scanner_.num_markup(/*is_end_of_output=*/false) : 0;
  const std::string text(scanner_.held().substr(num_markup));
  scanner_.forget();
  take(text, out);
}

void DsmlReader::take(std::string_view text, Events& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view byte = text.substr(i, 1);
    switch (place_) {
      case Place::kText:
        take_text(byte, out);
        break;
      case Place::kInvoke:
        if (is_json_space(byte.front())) break;
        place_ = byte.front() == '{' && !has_arguments_ ? Place::kObject : Place::kBroken;
        emit_arguments(byte, out);
        break;
      case Place::kString:
        emit_quoted(byte, out);
        break;
      case Place::kValue:
        take_value(byte.front(), out);
        break;
      case Place::kObject:
        emit_arguments(byte, out);
        if (state_ == State::kFailed) place_ = Place::kBroken;
        if (state_ == State::kDone) place_ = Place::kInvoke;
        break;
      case Place::kBroken:
        emit_arguments(byte, out);
        break;
    }
  }
}

void DsmlReader::take_text(std::string_view byte, Events& out) {
  const char c = byte.front();
  const bool may_be_markup = in_gap_ ? is_json_space(c) : c == '\n';
  if (!may_be_markup) {
    emit_space(out);
    in_gap_ = false;
    return emit(byte, out);
  }
  space_ += c;
  if (in_gap_ ? space_.size() > kMaxHeldBytes : space_.size() > kMaxBreaksBefore) {
    if (in_gap_) {
      emit_space(out);
      in_gap_ = false;
    } else {
      emit("\n", out);
      space_.pop_back();
    }
  }
}

void DsmlReader::take_value(char c, Events& out) {
  held_value_ += c;
  const State state = value_.push(c);
  if (state != State::kMore || value_.at_next_member()) {
    if (!streams_value_) return value_is_string(out);
    place_ = Place::kBroken;
  }
  if (!streams_value_ && held_value_.size() < kMaxHeldBytes && place_ == Place::kValue) return;
  streams_value_ = true;
  emit_arguments(std::exchange(held_value_, {}), out);
}

void DsmlReader::value_is_string(Events& out) {
  place_ = Place::kString;
  emit_arguments("\"", out);
  emit_quoted(std::exchange(held_value_, {}), out);
}

void DsmlReader::end_value(Events& out) {
  if (place_ == Place::kValue) {
    if (is_whole_value(value_)) {
      emit_arguments(std::exchange(held_value_, {}), out);
    } else if (streams_value_) {
      is_sound_ = false;
    } else {
      value_is_string(out);
    }
  }
  if (place_ == Place::kString) emit_arguments("\"", out);
  place_ = Place::kInvoke;
}

void DsmlReader::take_tag(const DsmlTag& tag, Events& out) {
  switch (place_) {
    case Place::kText:
      return take_tag_in_text(tag, out);
    case Place::kString:
    case Place::kValue:
      return take_tag_in_value(tag, out);
    case Place::kObject:
    case Place::kInvoke:
    case Place::kBroken:
      return take_tag_in_call(tag, out);
  }
}

void DsmlReader::take_tag_in_text(const DsmlTag& tag, Events& out) {
  if (!makes_calls_) return emit_space(out);
  const bool begins_call =
      tag.kind == TagKind::kInvoke && !tag.is_end && tag.name && is_function_name(*tag.name);
  const bool begins_section = tag.kind == TagKind::kSection && !tag.is_end;
  if (begins_call || begins_section) {
    space_.clear();
    has_ended_reasoning_ = has_ended_reasoning_ || kind_ == Kind::kReasoning;
    kind_ = Kind::kContent;
    in_gap_ = begins_section && !tag.is_empty;
    if (begins_call) begin_call(tag, out);
  } else if (in_gap_) {
    space_.clear();
    in_gap_ = tag.kind != TagKind::kSection;
  }
}

void DsmlReader::take_tag_in_value(const DsmlTag& tag, Events& out) {
  if (tag.kind == TagKind::kParameter && tag.is_end) return end_value(out);
  emit_arguments(std::exchange(held_value_, {}), out);
  is_sound_ = false;
  place_ = Place::kBroken;
  take_tag_in_call(tag, out);
}

void DsmlReader::take_tag_in_call(const DsmlTag& tag, Events& out) {
  if (tag.kind == TagKind::kParameter) {
    const bool is_misplaced = place_ != Place::kInvoke || state_ == State::kDone || !tag.name;
    if (tag.is_end) return;
    if (!is_misplaced) return begin_parameter(tag, out);
    is_sound_ = false;
    place_ = Place::kBroken;
    return;
  }
  if (tag.kind == TagKind::kInvoke && tag.is_end && place_ == Place::kInvoke) close_object(out);
  end_call(out);
  if (tag.kind != TagKind::kInvoke || !tag.is_end) take_tag_in_text(tag, out);
}

void DsmlReader::begin_call(const DsmlTag& tag, Events& out) {
  out.push_back({.kind = Kind::kToolCallBegin, .text = *tag.name, .index = num_calls_++});
  place_ = Place::kInvoke;
  names_.clear();
  is_sound_ = true;
  has_arguments_ = false;
  state_ = State::kMore;
  arguments_ = {};
  if (!tag.is_empty) return;
  close_object(out);
  end_call(out);
}

void DsmlReader::begin_parameter(const DsmlTag& tag, Events& out) {
  is_sound_ = names_.insert(*tag.name).second && is_sound_;
  emit_arguments((has_arguments_ ? ", " : "{") + json::dump(json::Value(*tag.name)) + ": ", out);
  held_value_.clear();
  streams_value_ = false;
  if (tag.is_string.value_or(false)) {
    place_ = Place::kString;
    emit_arguments("\"", out);
  } else {
    place_ = Place::kValue;
    value_ = at_value();
  }
  if (tag.is_empty) end_value(out);
}

// The end of an invoke that is in order.
void DsmlReader::close_object(Events& out) {
  if (state_ != State::kDone) emit_arguments(has_arguments_ ? "}" : "{}", out);
}

void DsmlReader::end_call(Events& out) {
  const bool is_whole = place_ == Place::kInvoke && is_sound_ && state_ == State::kDone;
  out.push_back({.kind = Kind::kToolCallEnd, .index = num_calls_ - 1, .is_complete = is_whole});
  place_ = Place::kText;
  in_gap_ = true;
}

// What may have been a tag and was cut off: its first bytes too where nothing but a tag is to be expected.
void DsmlReader::take_rest(Events& out) {
  const bool is_tag = place_ == Place::kInvoke || (place_ == Place::kText && in_gap_) ||
                      (place_ == Place::kValue && is_whole_value(value_));
  const std::string_view held = scanner_.held();
  const size_t num_markup = is_tag ? held.size() : scanner_.num_markup(/*is_end_of_output=*/true);
  const std::string text(held.substr(num_markup));
  scanner_.forget();
  take(text, out);
}

void DsmlReader::end_reasoning(Events& out) {
  take_rest(out);
  emit_space(out);
  append(std::exchange(held_mark_, {}), out);
  num_mark_ = 0;
}

void DsmlReader::finish(Events& out) {
  take_rest(out);
  if (in_call()) {
    emit_arguments(std::exchange(held_value_, {}), out);
    return end_call(out);
  }
  if (!in_gap_) emit_space(out);
  append(std::exchange(held_mark_, {}), out);
}

void DsmlReader::emit_space(Events& out) { emit(std::exchange(space_, {}), out); }

// What was left out may have stood between the halves of a mark: its last character stays out too.
void DsmlReader::emit(std::string_view text, Events& out) {
  constexpr size_t kNumBeforeLast = kDsmlMark.size() - 3;
  for (const char c : text) {
    if (c != kDsmlMark[num_mark_]) {
      append(std::exchange(held_mark_, {}), out);
      num_mark_ = c == kDsmlMark.front() ? 1 : 0;
      append({&c, 1}, out);
    } else if (++num_mark_ > kNumBeforeLast) {
      held_mark_ += c;
      if (num_mark_ < kDsmlMark.size()) continue;
      held_mark_.clear();
      num_mark_ = kNumBeforeLast;
    } else {
      append({&c, 1}, out);
    }
  }
}

void DsmlReader::append(std::string_view text, Events& out) {
  if (text.empty()) return;
  if (out.empty() || out.back().kind != kind_) out.push_back({.kind = kind_});
  out.back().text += text;
}

void DsmlReader::emit_arguments(std::string_view json, Events& out) {
  if (json.empty()) return;
  has_arguments_ = true;
  for (const char c : json) {
    state_ = state_ == State::kMore ? arguments_.push(c) : State::kFailed;
  }
  if (out.empty() || out.back().kind != Kind::kToolCallArguments) {
    out.push_back({.kind = Kind::kToolCallArguments, .index = num_calls_ - 1});
  }
  out.back().text += json;
}

void DsmlReader::emit_quoted(std::string_view text, Events& out) {
  std::string escaped;
  for (const char c : text) append_escaped(c, escaped);
  emit_arguments(escaped, out);
}

}  // namespace fathom::text
