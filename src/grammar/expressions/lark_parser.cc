#include "grammar/expressions/lark_parser.h"

#include <utility>

#include "grammar/expressions/expression.h"
#include "grammar/expressions/lark_lexer.h"

namespace fathom::grammar {
namespace {

using LarkKind = LarkWord::Kind;
using Node = LarkNode;

constexpr int kMaxRepetitions = 100'000;

class LarkParser {
 public:
  LarkParser(std::string_view text, LarkGrammar& grammar, Budget& budget)
      : grammar_(grammar), budget_(budget), words_(lark_words(text, budget)) {}

  void parse() {
    skip_line_ends();
    while (budget_.charge(8) && word().kind != LarkKind::kEnd) {
      if (word().kind == LarkKind::kCommand) {
        parse_command();
      } else {
        parse_definition();
      }
      if (word().kind != LarkKind::kLineEnd) fail("expected the end of a rule, got " + shown());
      skip_line_ends();
    }
  }

 private:
  const LarkWord& word(size_t ahead = 0) const {
    return words_[std::min(at_ + ahead, words_.size() - 1)];
  }
  LarkWord take() { return words_[at_ + 1 < words_.size() ? at_++ : at_]; }
  bool is_mark(std::string_view mark, size_t ahead = 0) const {
    return word(ahead).kind == LarkKind::kMark && word(ahead).text == mark;
  }
  bool skip(std::string_view mark) {
    if (!is_mark(mark)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view mark) {
    if (!skip(mark)) fail("expected " + std::string(mark) + ", got " + shown());
  }
  void skip_line_ends() {
    while (word().kind == LarkKind::kLineEnd) ++at_;
  }
  std::string shown() const {
    return word().kind == LarkKind::kLineEnd || word().kind == LarkKind::kEnd
               ? "the end of the line"
               : word().text.substr(0, 64);
  }
  void fail(const std::string& what) {
    fail_lark(word().line, what, budget_);
    at_ = words_.size() - 1;
  }

  std::string name() {
    if (word().kind == LarkKind::kName) return take().text;
    fail("expected a name, got " + shown());
    return "";
  }

  void parse_definition() {
    LarkDefinition definition{.params = {}, .body = {}, .line = word().line};
    const std::string defined = name();
    if (skip("{")) {
      do definition.params.push_back(name());
      while (budget_.charge(4) && skip(","));
      expect("}");
    }
    if (is_mark("[")) return fail("attributes in [...] are not supported");
    // A priority only chooses among the trees of one text.
    if (skip(".") && take().kind != LarkKind::kNumber) return fail("a priority is a number");
    if (!skip(":")) return fail("a rule's name is followed by a colon, got " + shown());
    definition.body = choice();
    const int line = definition.line;
    if (!grammar_.definitions.emplace(defined, std::move(definition)).second)
      fail_lark(line, "\"" + defined + "\" is defined twice", budget_);
  }

  void parse_command() {
    const LarkWord command = take();
    if (command.text == "%ignore") {
      grammar_.ignored.push_back(choice());
    } else if (command.text == "%declare") {
      while (word().kind == LarkKind::kName) grammar_.declared.insert(take().text);
    } else if (command.text == "%import") {
      parse_import();
    } else if (command.text == "%llguidance") {
      if (!skip("{") || !skip("}")) fail("of %llguidance only {} is supported");
    } else {
      fail(command.text + " is not supported");
    }
  }

  // %import common.NAME [-> OTHER], %import common (NAME, ...)
  void parse_import() {
    if (is_mark(".")) return fail("files are not read: of %import only common is supported");
    const std::string library = name();
    if (library != "common") return fail("of %import only common is supported, got " + library);
    if (skip("(")) {
      do {
        const std::string imported = name();
        import(imported, imported);
      } while (budget_.charge(4) && skip(","));
      return expect(")");
    }
    expect(".");
    const std::string imported = name();
    import(imported, skip("->") ? name() : imported);
  }

  // What it is made of comes along, under names that no grammar can have.
  void import(const std::string& imported, const std::string& as) {
    if (!budget_.ok()) return;
    LarkGrammar common;
    parse_lark(lark_common_terminals(), common, budget_);
    if (!common.definitions.contains(imported)) return fail("common has no " + imported);
    for (auto& [known, definition] : common.definitions) {
      prefix_names(definition.body);
      grammar_.definitions.emplace("common." + known, std::move(definition));
    }
    Node alias{.kind = Node::Kind::kName, .text = "common." + imported, .line = word().line};
    if (!grammar_.definitions.emplace(as, LarkDefinition{{}, std::move(alias), word().line}).second)
      fail("\"" + as + "\" is defined twice");
  }

  void prefix_names(Node& node) {
    if (node.kind == Node::Kind::kName) node.text = "common." + node.text;
    for (Node& part : node.parts) prefix_names(part);
  }

  // Alternatives; each may begin a line of its own.
  Node choice() {
    Node node{.kind = Node::Kind::kChoice, .line = word().line};
    if (++depth_ > budget_.limits().max_depth)
      fail("groups nested deeper than " + std::to_string(budget_.limits().max_depth));
    skip_break_before("|");
    skip("|");
    do {
      node.parts.push_back(branch());
      skip_break_before("|");
    } while (budget_.charge(4) && skip("|"));
    --depth_;
    return node;
  }

  void skip_break_before(std::string_view mark) {
    size_t ahead = 0;
    while (word(ahead).kind == LarkKind::kLineEnd) ++ahead;
    if (is_mark(mark, ahead)) at_ += ahead;
  }

  Node branch() {
    Node node{.kind = Node::Kind::kSequence, .line = word().line};
    while (budget_.charge(4) && begins_part()) node.parts.push_back(repeated());
    if (skip("->")) name();  // of a node in the tree
    if (is_mark("&") || is_mark("~")) fail(shown() + " between terminals is not supported");
    return node;
  }

  bool begins_part() const {
    const LarkKind kind = word().kind;
    return kind == LarkKind::kName || kind == LarkKind::kString || kind == LarkKind::kRegexp ||
           kind == LarkKind::kToken || kind == LarkKind::kJson || is_mark("(") || is_mark("[");
  }

  Node repeated() {
    Node part = atom();
    int min = 1, max = 1;
    if (skip("?")) {
      min = 0;
    } else if (skip("*")) {
      min = 0;
      max = kUnbounded;
    } else if (skip("+")) {
      max = kUnbounded;
    } else if (skip("~")) {
      min = max = count();
      if (skip(".")) {
        expect(".");
        max = count();
      }
      if (min > max) fail("a repetition whose least count is above its largest");
    } else if (is_mark("{")) {
      read_braces(min, max);
    } else {
      return part;
    }
    if (is_mark("?") || is_mark("*") || is_mark("+"))
      fail("a repetition of a repetition needs a group");
    return repeat_of(std::move(part), min, max);
  }

  // {m}, {m,}, {,n} and {m,n}, as llguidance has them.
  void read_braces(int& min, int& max) {
    expect("{");
    min = is_mark(",") ? 0 : count();
    max = min;
    if (skip(",")) max = is_mark("}") ? kUnbounded : count();
    expect("}");
    if (min > max) fail("a repetition whose least count is above its largest");
  }

  static Node repeat_of(Node part, int min, int max) {
    Node node{
        .kind = Node::Kind::kRepeat, .min = min, .max = std::max(min, max), .line = part.line};
    node.parts.push_back(std::move(part));
    return node;
  }

  int count() {
    if (word().kind != LarkKind::kNumber)
      return fail("a repetition needs a number, got " + shown()), 0;
    const std::string text = take().text;
    const bool is_fine = text[0] != '-' && text.size() <= 6 && std::stoi(text) <= kMaxRepetitions;
    if (!is_fine)
      fail("a repetition has 0 to " + std::to_string(kMaxRepetitions) + " times, got " + text);
    return is_fine ? std::stoi(text) : 0;
  }

  Node atom() {
    if (skip("(")) {
      Node inner = choice();
      skip_break_before(")");
      expect(")");
      return inner;
    }
    if (skip("[")) {
      Node inner = choice();
      skip_break_before("]");
      expect("]");
      return repeat_of(std::move(inner), 0, 1);
    }
    return value();
  }

  Node value() {
    const LarkWord first = take();
    Node node{
        .kind = Node::Kind::kName, .text = first.text, .flags = first.flags, .line = first.line};
    switch (first.kind) {
      case LarkKind::kString:
        node.kind = Node::Kind::kString;
        if (is_mark(".") && is_mark(".", 1)) {
          at_ += 2;
          node.kind = Node::Kind::kRange;
          if (word().kind != LarkKind::kString) fail("a range ends with a string");
          node.flags = take().text;
        }
        break;
      case LarkKind::kRegexp:
        node.kind = Node::Kind::kRegexp;
        break;
      case LarkKind::kToken:
        node.kind = Node::Kind::kToken;
        break;
      case LarkKind::kJson:
        node.kind = Node::Kind::kJson;
        break;
      default:
        if (!is_terminal(first.text) && is_mark("{") && word(1).kind != LarkKind::kNumber &&
            !is_mark(",", 1))
          read_arguments(node);
        break;
    }
    return node;
  }

  void read_arguments(Node& node) {
    expect("{");
    if (++depth_ > budget_.limits().max_depth)
      fail("templates nested deeper than " + std::to_string(budget_.limits().max_depth));
    do node.parts.push_back(choice());
    while (budget_.charge(4) && skip(","));
    --depth_;
    expect("}");
  }

  LarkGrammar& grammar_;
  Budget& budget_;
  const std::vector<LarkWord> words_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

void parse_lark(std::string_view text, LarkGrammar& grammar, Budget& budget) {
  LarkParser(text, grammar, budget).parse();
}

std::string_view lark_common_terminals() {
  return R"(DIGIT: "0".."9"
HEXDIGIT: "a".."f" | "A".."F" | DIGIT
INT: DIGIT+
SIGNED_INT: ["+" | "-"] INT
DECIMAL: INT "." INT? | "." INT
_EXP: ("e" | "E") SIGNED_INT
FLOAT: INT _EXP | DECIMAL _EXP?
SIGNED_FLOAT: ["+" | "-"] FLOAT
NUMBER: FLOAT | INT
SIGNED_NUMBER: ["+" | "-"] NUMBER
ESCAPED_STRING: "\"" /([^"\\\n\r]|\\[^\n\r])*/ "\""
LCASE_LETTER: "a".."z"
UCASE_LETTER: "A".."Z"
LETTER: UCASE_LETTER | LCASE_LETTER
WORD: LETTER+
CNAME: ("_" | LETTER) ("_" | LETTER | DIGIT)*
WS_INLINE: (" " | "\t")+
WS: /[ \t\f\r\n]+/
CR: "\r"
LF: "\n"
NEWLINE: (CR? LF)+
SH_COMMENT: /#[^\n]*/
CPP_COMMENT: /\/\/[^\n]*/
C_COMMENT: /\/\*([^*]|\*+[^*\/])*\*+\//
SQL_COMMENT: /--[^\n]*/
)";
}

}  // namespace fathom::grammar
