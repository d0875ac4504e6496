#include "answer/custom_input.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "api/custom_tools.h"
#include "base/json.h"

namespace fathom::answer {
namespace {

constexpr size_t kShortEscape = 2, kUnicodeEscape = 6, kPairEscape = 12;

// What the arguments begin with, white space between its parts: { "input" : "
enum class Prefix { kWhole, kCut, kOther };

Prefix find_begin(std::string_view text, size_t& end) {
  const std::string key = '"' + std::string(api::kInputKey) + '"';
  size_t at = 0;
  for (const std::string_view part : {std::string_view("{"), std::string_view(key),
                                      std::string_view(":"), std::string_view("\"")}) {
    at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
    const std::string_view rest = text.substr(at, part.size());
    if (rest != part.substr(0, rest.size())) return Prefix::kOther;
    if (rest.size() < part.size()) return Prefix::kCut;
    at += part.size();
  }
  end = at;
  return Prefix::kWhole;
}

bool is_high_surrogate(std::string_view escape) {
  unsigned code = 0;
  std::from_chars(escape.data() + 2, escape.data() + kUnicodeEscape, code, 16);
  return code >= 0xd800 && code < 0xdc00;
}

}  // namespace

std::string CustomInput::push(std::string_view arguments) {
  if (state_ == State::kBehind) return "";
  if (state_ == State::kOther) return std::string(arguments);
  held_ += arguments;
  std::string out;
  if (state_ == State::kBefore) begin();
  if (state_ == State::kOther) out = std::exchange(held_, {});
  if (state_ == State::kText) read_text(out);
  return out;
}

void CustomInput::begin() {
  size_t end = 0;
  const Prefix prefix = find_begin(held_, end);
  if (prefix == Prefix::kCut) return;
  state_ = prefix == Prefix::kWhole ? State::kText : State::kOther;
  if (prefix == Prefix::kWhole) held_.erase(0, end);
}

void CustomInput::read_text(std::string& out) {
  size_t at = 0;
  while (at < held_.size()) {
    if (held_[at] == '"') {
      state_ = State::kBehind;
      at = held_.size();
    } else if (held_[at] == '\\') {
      const size_t size = read_escape(at, out);
      if (size == 0) break;
      at += size;
    } else {
      out += held_[at++];
    }
  }
  held_.erase(0, at);
}

size_t CustomInput::read_escape(size_t at, std::string& out) const {
  const std::string_view rest = std::string_view(held_).substr(at);
  size_t size = rest.size() < kShortEscape || rest[1] != 'u' ? kShortEscape : kUnicodeEscape;
  if (size == kUnicodeEscape && rest.size() >= size && is_high_surrogate(rest)) size = kPairEscape;
  if (rest.size() < size) return 0;
  // The output parser lets only well-formed JSON through as arguments of a call that goes on.
  const Result<json::Value> text = json::parse('"' + std::string(rest.substr(0, size)) + '"');
  out += text ? text->get<std::string>() : std::string(rest.substr(0, size));
  return size;
}

}  // namespace fathom::answer
