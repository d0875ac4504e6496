#include "grammar/expressions/lark_lexer.h"

#include <algorithm>
#include <utility>

#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

using LarkKind = LarkWord::Kind;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class LarkLexer {
 public:
  LarkLexer(std::string_view text, Budget& budget) : text_(text), budget_(budget) {}

  std::vector<LarkWord> words() {
    while (budget_.charge(4) && pos_ < text_.size()) {
      if (!skip_blank()) read_word();
    }
    add(LarkKind::kLineEnd, "");
    add(LarkKind::kEnd, "");
    return std::move(words_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }
  void add(LarkKind kind, std::string text, std::string flags = "") {
    budget_.charge_memory(static_cast<int64_t>(text.size()) + 96);
    words_.push_back({kind, std::move(text), std::move(flags), line_});
  }
  void fail(const std::string& what) {
    fail_lark(line_, what, budget_);
    pos_ = text_.size();
  }

  // Spaces, comments, line breaks.
  bool skip_blank() {
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r' || c == '\f') {
      ++pos_;
    } else if (c == '#' || (c == '/' && peek(1) == '/')) {
      while (pos_ < text_.size() && peek() != '\n') ++pos_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      pos_ += peek(1) == '\n' ? 2 : 3;  // the line goes on
      ++line_;
    } else if (c == '\n') {
      if (words_.empty() || words_.back().kind != LarkKind::kLineEnd) add(LarkKind::kLineEnd, "");
      ++pos_;
      ++line_;
    } else {
      return false;
    }
    return true;
  }

  void read_word() {
    const char c = peek();
    const bool is_modified =
        (c == '!' || c == '?') && (is_letter(peek(1)) || peek(1) == '!' || peek(1) == '?');
    const bool is_first = words_.empty() || words_.back().kind == LarkKind::kLineEnd;
    if (is_letter(c)) {
      add(LarkKind::kName, take(is_letter, is_digit));
    } else if (is_modified && is_first) {
      ++pos_;  // says how trees are made
    } else if (is_digit(c) || (c == '-' && is_digit(peek(1)))) {
      const std::string sign = c == '-' ? "-" : "";
      pos_ += sign.size();
      add(LarkKind::kNumber, sign + take(is_digit, is_digit));
    } else if (c == '"') {
      read_string();
    } else if (c == '/') {
      read_regexp();
    } else if (c == '%') {
      ++pos_;
      const std::string name = "%" + take(is_letter, is_letter);
      if (name == "%json") return read_json();
      add(LarkKind::kCommand, name);
    } else if (c == '<') {
      const size_t end = text_.find_first_of(">\n", pos_);
      if (end == text_.npos || text_[end] != '>') return fail("a special token without its >");
      add(LarkKind::kToken, std::string(text_.substr(pos_, end + 1 - pos_)));
      pos_ = end + 1;
    } else if (c == '-' && peek(1) == '>') {
      add(LarkKind::kMark, "->");
      pos_ += 2;
    } else if (std::string_view(":|()[]{},.~*+?&=").find(c) != std::string_view::npos) {
      add(LarkKind::kMark, std::string(1, c));
      ++pos_;
    } else {
      fail("a character that begins nothing: " + std::string(1, c));
    }
  }

  template <class A, class B>
  std::string take(const A& a, const B& b) {
    const size_t begin = pos_;
    while (a(peek()) || b(peek())) ++pos_;
    budget_.charge(static_cast<int64_t>(pos_ - begin));
    return std::string(text_.substr(begin, pos_ - begin));
  }

  std::string take_flags() {
    const size_t begin = pos_;
    while (peek() != '\0' && std::string_view("imslux").find(peek()) != std::string_view::npos)
      ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  void read_string() {
    ++pos_;
    std::string text;
    while (budget_.charge(1) && peek() != '"') {
      if (pos_ >= text_.size() || peek() == '\n') return fail("a string without its closing quote");
      std::string_view rest = text_.substr(pos_);
      if (peek() == '\\') {
        ++pos_;
        append_escape(text);
      } else if (const std::optional<char32_t> c = take_utf8(rest)) {
        append_utf8(*c, text);
        pos_ = text_.size() - rest.size();
      } else {
        return fail("not valid UTF-8");
      }
    }
    ++pos_;
    add(LarkKind::kString, std::move(text), peek() == 'i' ? "i" : "");
    if (peek() == 'i') ++pos_;
  }

  // As in Lark: what is no known escape keeps its backslash.
  void append_escape(std::string& text) {
    static constexpr std::string_view kNames = "nrtf\"\\", kMeanings = "\n\r\t\f\"\\";
    const char c = peek();
    const size_t known = kNames.find(c);
    const int num_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\0' || c == '\n') return fail("a string without its closing quote");
    if (known != kNames.npos) {
      text += kMeanings[known];
      ++pos_;
    } else if (num_digits > 0) {
      ++pos_;
      append_code_point(num_digits, text);
    } else {
      text += '\\';
    }
  }

  void append_code_point(int num_digits, std::string& text) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++pos_) {
      const size_t digit =
          std::string_view("0123456789abcdef").find(static_cast<char>(peek() | 0x20));
      if (digit == std::string_view::npos || value > kMaxCodePoint)
        return fail("an escape needs " + std::to_string(num_digits) + " hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (normalized({{value, value}}).empty()) return fail("an escape that is no Unicode character");
    append_utf8(value, text);
  }

  void read_regexp() {
    const size_t begin = ++pos_;
    while (budget_.charge(1) && peek() != '/') {
      if (pos_ >= text_.size() || peek() == '\n') return fail("a regexp without its closing slash");
      pos_ += peek() == '\\' && peek(1) != '\n' ? 2 : 1;
    }
    if (pos_ > text_.size()) return fail("a regexp without its closing slash");
    std::string pattern(text_.substr(begin, pos_ - begin));
    ++pos_;
    std::string flags = take_flags();
    add(LarkKind::kRegexp, std::move(pattern), std::move(flags));
  }

  // The object behind %json, up to its closing bracket.
  void read_json() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++pos_;
    const size_t begin = pos_;
    const int line = line_;
    int depth = 0;
    bool is_text = false;
    do {
      const char c = peek();
      if (pos_ >= text_.size() || (pos_ == begin && c != '{'))
        return fail("%json is followed by an object");
      if (c == '\n') ++line_;
      if (is_text && c == '\\') ++pos_;
      if (c == '"') is_text = !is_text;
      if (!is_text) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      ++pos_;
    } while (depth > 0 && budget_.charge(1));
    add(LarkKind::kJson, std::string(text_.substr(begin, pos_ - begin)));
    words_.back().line = line;
  }

  std::string_view text_;
  Budget& budget_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<LarkWord> words_;
};

}  // namespace

std::vector<LarkWord> lark_words(std::string_view text, Budget& budget) {
  return LarkLexer(text, budget).words();
}

bool is_terminal(std::string_view name) {
  const size_t letter = name.find_first_not_of('_');
  return letter != name.npos && name[letter] >= 'A' && name[letter] <= 'Z';
}

bool is_lark(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    size_t at = line.find_first_not_of(" \t\r\f");
    if (at == line.npos || line[at] == '#' || line.substr(at, 2) == "//") continue;
    if (line[at] == '%' || line[at] == '?' || line[at] == '!') return true;
    while (at < line.size() && (is_letter(line[at]) || is_digit(line[at]) || line[at] == '-')) ++at;
    // Parameters and a priority of Lark's.
    at = line.find_first_not_of(" \t", at);
    if (at == line.npos) return false;
    return line[at] == '{' || line[at] == '[' || line[at] == '.' ||
           (line[at] == ':' && line.substr(at, 3) != "::=");
  }
  return false;
}

void fail_lark(int line, const std::string& what, Budget& budget) {
  budget.fail(invalid_argument("lark at line " + std::to_string(line) + ": " + what));
}

}  // namespace fathom::grammar
