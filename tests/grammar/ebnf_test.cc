#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

bool fits(const std::string& rules, const std::string& text) {
  static const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto constraint = compiled(ebnf(rules))->new_constraint(bytes.vocabulary);
  for (const char c : text) {
    if (!constraint->accept(static_cast<uint8_t>(c))) return false;
  }
  return constraint->accept(bytes.eos);
}

TEST(Ebnf, names_what_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no rule \"root\""},
      {"root ::= x", "\"x\" is not defined"},
      {"root ::= \"a", "closing quote"},
      {"root ::= (\"a\"", "( without )"},
      {"root \"a\"", "::="},
      {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
      {"root ::= root", "no finite text"},
      {"root ::= \"a\" )", ""},
      {"root ::= \"\\d\"", "set of characters"},
      {"root ::= \"\\U00110000\"", "no Unicode character"},
      {"root ::= \"\\U0001F60\"", "8 hexadecimal digits"},
      {"root ::= \"a\"{2 3}", "needs }"},
      {"root ::= \"a\"{ , 3}", "needs a number"},
      {"root ::= \"a\"{2, -2}", "needs a number"},
      {"root ::= \"a\" (=\"b\")", "lookahead (=...) is not supported"},
      {"root ::= \"a\" (= [0-9] \"b\")", "lookahead (=...) is not supported"},
      {"root ::= TagDispatch((\"a\", b))\nb ::= \"b\"", "TagDispatch(...) is not supported"},
      {"root ::= Regex(\"a+\")", "Regex(...) is not supported"}};
  for (const auto& [text, word] : cases) {
    const auto grammar = compile(ebnf(text));
    ASSERT_FALSE(grammar) << text;
    EXPECT_NE(grammar.error().message.find(word), std::string::npos)
        << text << " -> " << grammar.error().message;
  }
}

TEST(Ebnf, reads_rules_comments_and_repetitions) {
  const std::string rules =
      "# a list\nroot ::= item (\", \" item){1,2} # two or three\nitem ::= [a-c]+\n  "
      "| \"\\\"\" [^\"]* \"\\\"\"\n";
  EXPECT_TRUE(fits(rules, "a, bc"));
  EXPECT_TRUE(fits(rules, "a, \"x, y\", c"));
  EXPECT_FALSE(fits(rules, "a"));
  EXPECT_FALSE(fits(rules, "a, b, c, a"));
}

// However it is written, the counts are 2 to 3, or 2 and more.
TEST(Ebnf, repetitions_may_have_spaces) {
  for (const std::string written :
       {"{2,3}", "{2, 3}", "{ 2 , 3 }", " {2,3}", "\n  {2,\t3}", " # so often\n{2,3}"}) {
    const std::string rules = "root ::= \"a\"" + written + " rest\nrest ::= \"b\" *";
    for (const char* text : {"aa", "aaa", "aab", "aaabb"})
      EXPECT_TRUE(fits(rules, text)) << rules << " " << text;
    for (const char* text : {"", "a", "aaaa", "ab"})
      EXPECT_FALSE(fits(rules, text)) << rules << " " << text;
  }
  for (const std::string written : {"{2,}", "{2, }", "{2, -1}", " { 2,-1 }"}) {
    const std::string rules = "root ::= \"a\"" + written;
    EXPECT_FALSE(fits(rules, "a")) << rules;
    EXPECT_TRUE(fits(rules, "aa")) << rules;
    EXPECT_TRUE(fits(rules, "aaaaaaa")) << rules;
  }
}

TEST(Ebnf, a_name_behind_spaces_is_repeated_and_the_next_rule_begins_all_the_same) {
  const std::string rules = "root ::= x ?\n y\nx ::= \"x\"\ny ::= \"y\" +\nz ::= x";
  EXPECT_TRUE(fits(rules, "xyy"));
  EXPECT_TRUE(fits(rules, "y"));
  EXPECT_FALSE(fits(rules, "x"));
  EXPECT_FALSE(fits(rules, "xxy"));
}

TEST(Ebnf, escapes_are_those_of_c) {
  EXPECT_TRUE(fits(R"(root ::= "\U0001F600\U000000e9\u00e9\x41")", "\U0001F600\u00e9\u00e9A"));
  EXPECT_TRUE(fits(R"(root ::= [\U0001F600-\U0001F602]{2})", "\U0001F600\U0001F602"));
  EXPECT_FALSE(fits(R"(root ::= [\U0001F600-\U0001F602])", "\U0001F603"));
  EXPECT_TRUE(fits(R"(root ::= "\a\b\e\f\v\0\'\?\/")", std::string("\a\b\x1b\f\v\0'?/", 9)));
  // Patterns know none of them.
  for (const char* pattern : {"\\U0001F600", "\\a", "\\e", "a{2, 3}"}) {
    EXPECT_FALSE(compile(regex(pattern))) << pattern;
  }
}

}  // namespace
}  // namespace fathom::grammar::tests
