#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/tool_calls.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

bool lark_fits(const std::string& rules, const std::string& text) {
  return takes_all(lark(rules), text);
}

constexpr const char* kCalculator = R"lark(
// Sums, as in Lark's own examples.
%import common.NUMBER
%import common (CNAME, WS_INLINE)
%ignore WS_INLINE

?start: sum
      | CNAME "=" sum    -> assign_var
?sum.2: product
    | sum "+" product   -> add
    | sum "-" product   -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER -> number
     | "-" atom
     | CNAME
     | "(" sum ")"
)lark";

TEST(Lark, reads_rules_imports_and_what_is_ignored) {
  for (const char* text : {"1", "x = 1 + 2*(3.5e1 - y)", " - 4 ", "a*b/c"})
    EXPECT_TRUE(lark_fits(kCalculator, text)) << text;
  for (const char* text : {"", "1 +", "(1", "x = = 1", "1\n"})
    EXPECT_FALSE(lark_fits(kCalculator, text)) << text;
}

TEST(Lark, reads_patches) {
  const std::string rules = R"lark(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
)lark";
  EXPECT_TRUE(
      lark_fits(rules, "*** Begin Patch\n*** Add File: a.py\n+x = \"1\"\n+\n*** End Patch\n"));
  EXPECT_TRUE(lark_fits(rules, "*** Begin Patch\n*** Delete File: a\n*** End Patch"));
  EXPECT_FALSE(lark_fits(rules, "*** Begin Patch\n*** Add File: a\n*** End Patch"));
}

TEST(Lark, reads_repetitions_ranges_flags_and_templates) {
  EXPECT_TRUE(lark_fits("start: \"a\"~2..3 [B] \"c\" ~ 2\nB: \"b\"i", "aaBcc"));
  EXPECT_FALSE(lark_fits("start: \"a\"~2..3 [B] \"c\" ~ 2\nB: \"b\"i", "aBcc"));
  EXPECT_TRUE(lark_fits("start: X+\nX: \"0\"..\"9\" | \"a\"..\"f\"", "09af"));
  EXPECT_TRUE(lark_fits("start: /select/i /.b/s", "SeLeCt\nb"));
  EXPECT_FALSE(lark_fits("start: /.b/", "\nb"));
  const std::string lists =
      "start: sep{INT, \",\"} \";\" sep{word, \" \"}\n"
      "sep{x, mark}: x (mark x)*\nword: \"w\"+\n%import common.INT\n";
  EXPECT_TRUE(lark_fits(lists, "1,22,3;w ww"));
  EXPECT_FALSE(lark_fits(lists, "1 2;w"));
  EXPECT_TRUE(lark_fits("start: \"\\\"\\\\\\n\\u00e9\\d\"", "\"\\\n\u00e9\\d"));
  EXPECT_TRUE(lark_fits("start: a{2} b{,1}\na: \"a\"\nb: \"b\"", "aab"));
  EXPECT_TRUE(lark_fits(
      "start: %json {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"null\"}}}",
      "{\"a\":null}"));
}

// As a lexer ends it: at the first place where it can.
TEST(Lark, lazy_regexps_end_at_the_first_match) {
  const std::string rules =
      "start: TEXT COMMENT\nTEXT: \"\\\"\" /.*?/ \"\\\"\"\nCOMMENT: /\\/\\*(.|\\n)*?\\*\\//";
  EXPECT_TRUE(lark_fits(rules, "\"a\"/* x * \n */"));
  EXPECT_FALSE(lark_fits(rules, "\"a\"b\"/**/"));
  EXPECT_FALSE(lark_fits(rules, "\"a\"/* */ */"));
}

TEST(Lark, names_what_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"rule: \"a\"", "no rule \"start\""},
      {"start: x", "line 1: rule \"x\" is not defined"},
      {"start: X", "\"X\" is not defined"},
      {"start: \"a\"\n\nstart: \"b\"", "line 3: \"start\" is defined twice"},
      {"start: \"a", "closing quote"},
      {"start: /a", "closing slash"},
      {"start: (\"a\"", "expected )"},
      {"start: X\nX: \"a\" X", "contains itself"},
      {"start: X\nX: y\ny: \"a\"", "rule \"y\" is not supported within a terminal"},
      {"start: X\n%declare X", "declared without a text"},
      {"%import python.NAME\nstart: NAME", "only common"},
      {"%import .other.NAME\nstart: NAME", "files are not read"},
      {"%import common.NONE\nstart: NONE", "common has no NONE"},
      {"%override start: \"a\"", "%override is not supported"},
      {"start: \"a\"~3..2", "least count"},
      {"start: /a(?=b)/", "look-around"},
      {"start: /a/x", "flag x"},
      {"start: /[[:alpha:]]/", "line 1: regexp at byte"},
      {"start: \"b\"..\"a\"", "a range"},
      {"start[lazy]: \"a\"", "attributes"},
      {"start: a{start}\na{x}: a{a{x}}", "grow without end"},
      {"start: a{start, start}\na{x}: x", "takes 1 arguments, got 2"},
      {"start: <think>", "special tokens are not known here"},
      {"start: start", "no finite text"}};
  for (const auto& [text, word] : cases) {
    const auto grammar = compile(lark(text));
    ASSERT_FALSE(grammar) << text;
    EXPECT_NE(grammar.error().message.find(word), std::string::npos)
        << text << " -> " << grammar.error().message;
  }
}

TEST(Lark, is_told_from_ebnf_by_its_first_rule) {
  EXPECT_TRUE(takes_all(rules_text("// a comment\n\nstart: \"::=\""), "::="));
  EXPECT_TRUE(takes_all(rules_text("%import common.INT\nstart: INT"), "1"));
  EXPECT_TRUE(takes_all(rules_text("?start: \"a\""), "a"));
  EXPECT_TRUE(takes_all(rules_text("# a comment\nroot ::= \"start: \""), "start: "));
  const auto neither = compile(rules_text("root = \"a\""));
  ASSERT_FALSE(neither);
  EXPECT_NE(neither.error().message.find("ebnf"), std::string::npos) << neither.error().message;
}

TEST(Lark, tokens_are_looked_up_by_name_and_id) {
  const TestVocabulary vocabulary = make_vocabulary(byte_tokens(), {"<think>", "</think>"});
  const int32_t begin = 256, end = 257;
  const TokenLookup find = [&](std::string_view name) -> std::optional<Marker> {
    if (name == "<think>" || name == "<[256]>") return Marker{"<think>", begin};
    if (name == "</think>") return Marker{"</think>", end};
    if (name == "<[97]>") return Marker{"a", -1};
    return std::nullopt;
  };
  for (const Expression& rules : {ebnf("root ::= <think> !</think>* </think> <[97]>", find),
                                  lark("start: <[256]> /(.|\\n)*/ </think> <[97]>", find)}) {
    const auto constraint = compiled(rules)->new_constraint(vocabulary.vocabulary);
    for (const int32_t token :
         {begin, int32_t{'x'}, int32_t{'\n'}, end, int32_t{'a'}, vocabulary.eos})
      EXPECT_TRUE(constraint->accept(token)) << token;
  }
  const auto unknown = compile(ebnf("root ::= <other>", find));
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("<other> is no token"), std::string::npos);
  EXPECT_FALSE(compile(ebnf("root ::= !<think>", find)));
}

// The arguments of a custom tool: an object whose one string says what the grammar takes.
TEST(Lark, the_input_of_a_tool_follows_its_grammar) {
  const std::string rules = "start: line+\nline: \"say \" /\"[^\"\\n]*\"/ LF\n%import common.LF";
  const auto call = [](const json::Value& text) { return "{\"input\": " + json::dump(text) + "}"; };
  for (const Expression& input : {lark(rules), regex("(say \"[^\"\\n]*\"\\n)+")}) {
    const Expression member = json_text_member("input", input);
    EXPECT_TRUE(takes_all(member, call("say \"h\u00e9 \\\t\"\nsay \"\"\n")));
    EXPECT_FALSE(takes_all(member, call("say \"a\"")));
    EXPECT_FALSE(takes_all(member, call("")));
    EXPECT_FALSE(takes_all(member, "{\"input\":\"say \"a\"\n\"}"));
  }
  const ToolCallSyntax syntax{
      .section_begin = {"<calls>"},
      .section_end = {"</calls>"},
      .call_begin = {"<call>"},
      .steps = {{ToolCallStep::Kind::kName}, {ToolCallStep::Kind::kObject}}};
  const Expression calls =
      tool_calls(syntax, {{.name = "patch", .parameters_schema = "", .input = lark(rules)}},
                 {.required = true});
  EXPECT_TRUE(takes_all(calls, "<calls><call>patch" + call("say \"x\"\n") + "</calls>"));
  EXPECT_FALSE(takes_all(calls, "<calls><call>patch" + call("x") + "</calls>"));
  EXPECT_FALSE(takes_all(calls, "<calls><call>patch{}</calls>"));
  const auto refused = compile(json_text_member("input", lark("start: %json {\"type\":\"null\"}")));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("JSON string"), std::string::npos);
}

}  // namespace
}  // namespace fathom::grammar::tests
