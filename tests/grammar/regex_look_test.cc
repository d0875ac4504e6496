// Look-around, borders of words, anchors within and flags. What fits is what Python's re.search() says.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

bool grammar_takes(const CompiledGrammar& grammar, const std::string& text) {
  static const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto constraint = grammar.new_constraint(bytes.vocabulary);
  for (const char c : text) {
    if (!constraint->accept(static_cast<uint8_t>(c))) return false;
  }
  return constraint->accept(bytes.eos);
}

bool pattern_fits(const std::string& pattern, const std::string& text) {
  return grammar_takes(*compiled(regex(pattern)), text);
}

struct PatternCase {
  std::string pattern;
  std::vector<std::string> fitting, others;
};

TEST(RegexLook, agrees_with_python) {
  const std::vector<PatternCase> cases = {
      {"^(?!\\.)(?!.*\\.\\.)([a1._]*)[a1_]@([a1]+\\.)+[a]{2,}$",
       {"a.a@a.aa", "a1@1.a1.aa", "a@a.aa"},
       {"+.",       "+0.1",    "-",       "-.A.b@bb", "-1._@B",    "-a1",     "..A",
        ".a@a.aa",  "0.",      "00",      "11+A+",    "1a ",       "1a@ab.-", "@1.a+@",
        "@_a+.+.+", "A_.+a.+", "BaAAAA-", "_b_bBB",   "a..a@a.aa", "aA.-",    "bA-"}},
      {"^(?!^[-+.]*$)[+-]?0*[01]*\\.?[01]*$",
       {"+0.1", "+1.", "+11", "-.1", "-1", "-11", ".1", ".11", "0.", "00", "1", "1.1", "11", "111"},
       {" 1.",       "+-@11.+",  "+.",      "+b1A__A+", "-",    ".-b1BA_", ".B_1",
        ".a ",       ".a-",      ".a@a.aa", ".aA",      ".bBB", "@b--+",   "A@B_A",
        "a..a@a.aa", "a.a@a.aa", "a@a.aa",  "aB_b",     "aa+_", "bb+_"}},
      {"(?=.*[01])(?=.*[ab]).{2,4}",
       {"+-1aa", "+_1+a", "AA-b1", "Aa_1Ba", "a 1", "a++1b@_+", "a1-a+", "b+.1.1b+", "b1BbB",
        "b1_+11B", "b1a", "b1b", "b@1", "bA.1B@"},
       {"+-@11.+", "+.",        "+0.1",     "+1.BBB++", "+A.b@.bA", "-",   "-+B",   ". .",
        ".@Ba",    ".a@a.aa",   "0.",       "00",       "1 ",       "1.@", "@--bb", "@AAbAB+",
        "A__1_++", "a..a@a.aa", "a.a@a.aa", "a@a.aa",   "aaB@+",    "b..", "bAA"}},
      {"\\ba",
       {"--a", "-a1__", "-ab", "-b-+abb.", ".+a1a", ".a-", ".a@a.aa", "B.Bb-a_", "Bb_+a_a+",
        "_a+a+-1a", "a+_+A", "a-a", "a..a@a.aa", "a.a@a.aa", "a1@1.a1.aa", "a@a.aa", "aA.-",
        "ab1+b"},
       {"+-@-", "+.", "+0.1", "+A.b@.bA", "-", "-1._@B", "0.", "00", "1", "1_b1bbb", "@++b",
        "A1.B_.+B", "_1b+b", "_@_@BB@", "b -", "b-", "b@1", "b_1_", "ba+"}},
      {"a\\b",
       {" a", "+.1Bb@a", "+@a", "-ba", ".a@a.aa", ".aa", "1.a", "1a-", "1aa", "@_a+.+.+", "a- ",
        "a-a", "a-a-", "a..a@a.aa", "a.a@a.aa", "a.aaB.+@", "a@a.aa", "aa."},
       {"+.", "+0.1", "+A1", "+AB_B@a_", "-", "-_ab", "..b", ".1-", ".@1-", "0.", "00", "1bb",
        "@1ba1@", "B_--.", "___B", "aAb-", "aBbaB@b", "ab-", "b-"}},
      {"\\Ba",
       {" 1a", " ba", "-.B+ba.1", "-1a", ".AbbBba", "._a..B", ".a@a.aa", "1a-", "Aa+b", "Aa_1Ba",
        "BaA._", "_+1abBA-", "__aa", "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aa.", "ba."},
       {" .b", "+.", "+0.1", "+B-1", "-", "-a", "..A", ".a+1_B+b", "0.", "00", "1B_", "1__+B",
        "1b ", "A.1.", "A__1_++", "_1@", "_@B.", "b@+."}},
      {"\\ba1\\b|b",
       {"+.1Bb@a", "-1__b", ".b.", "11b", "@b--+", "@bb1A", "_.b@ABA", "a1 ", "aAB+A.@b", "aBB.1-b",
        "ab1-b_", "abb", "b_b-__+", "bb "},
       {" 1",     " 1 ",    "+.",  "+0.1",      "-",      "- ",       ".a@a.aa", ".aB-",
        "0.",     "00",     "111", "@.1B1-",    "@.@+a",  "@BA+@",    "B1_-",    "BBa.A_",
        "B_-_A_", "_-BBA+", "a ",  "a..a@a.aa", "a.a+-a", "a.a@a.aa", "a@a.aa"}},
      {"(?<!a)b",
       {"+_bA", ".bb", "1Bb.Ba+", "@a.1Bb.", "B+.+__bB", "_1Bb+a", "__+-1b", "a1B+b", "abb", "b 1",
        "b-1A", "b1BbB", "bA-", "b_1_"},
       {"+.",     "+0.1", "+11",       "-",        "-@_1+@_", "-ab",      ".+a1a",  ".-.",
        ".a",     ".a1",  ".a@a.aa",   "0.",       "00",      "1-.--+11", "11-a-",  "@-1",
        "A+-abB", "_1_-", "a..a@a.aa", "a.a@a.aa", "a1-a+",   "a@a.aa",   "aA-a1-."}},
      {"(?<=a)b+",
       {".ab", "1a@ab.-", "1aab", "1ab", "_+1abBA-", "aab..", "ab", "ab ", "ab1", "ab_B@1", "abb",
        "b+_ab+@.", "b.-abAB", "b1abA"},
       {" --",      "+-@11.+",   "+.",       "+0.1",     "+11B-", "+BBBB.a", "-",  "-a",
        "-bB_.b11", "..-B",      ".1-",      ".1a.aB.b", ".a ",   ".a@a.aa", "0.", "00",
        "a .",      "a..a@a.aa", "a.a@a.aa", "a@a.aa",   "aa+_",  "bb-",     "bbb"}},
      {"a(?!b)",
       {"+.1Bb@a", "+a_B+.", ".-a", ".a@a.aa", "1a.+.aa", "AbB.a.", "_1a@@11", "a-a-", "a..a@a.aa",
        "a.1B+B1.", "a.a@a.aa", "a1-", "a@a.aa", "aa+_", "aa1_+", "aaB@+", "b a"},
       {"+.", "+0.1", "+_@++BB", "+bbb@", "-", "-+_", "-@_1+@_", ".", "..AA", ".B--b1", "0.", "00",
        "1 ", "A1@b_1", "A_@_Bb", "b 1", "b.", "b..", "bb.+b"}},
      {"(?:a(?=b)|b)+",
       {"+_b+-+", "-bAA_1a", ".a+1_B+b", "1+aabA", "@1ba1@", "@b+1@a", "_-bA@a", "ab", "ab1+b",
        "b- ", "b-AB+B", "b1.-a", "b1BbB", "bAA.B"},
       {"   ", "  -",     " -.",  "+.",        "+0.1",     "+11B-",   "-",       "-.",
        ".11", ".a@a.aa", "0.",   "00",        "@++A",     "A.@A-A1", "B+11aa.", "BA_A",
        "_@B", "__+_-a@", "__aa", "a..a@a.aa", "a.a@a.aa", "a@a.aa",  "aa1"}},
      {"^(?!a|b$)[ab.]*$",
       {"", ".", "..a", "..b", ".aa", ".ab", ".bb", "b..", "b.a", "b.b", "baa", "bab", "bb.",
        "bbb"},
       {"  a",       " - ",      " a",     "+.",   "+0.1", "-",        "-a.",
        ".-b",       ".a@a.aa",  "0.",     "00",   "1a1",  "@-_B",     "@bb-@",
        "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aB._", "a_A",  "b+B...bB", "ba-"}},
      {"a$|^b",
       {"  a", "-aa", "._.-.+a", ".a@a.aa", ".b+a", "a a", "a..a@a.aa", "a.a@a.aa", "a@a.aa", "b  ",
        "b1 ", "b1.", "b@+.", "b@A-A_1", "bA.1B@", "bBa+B", "b__A+-", "b_aBBb-B"},
       {"+.", "+0.1", "+a_B_+", "+b1A__A+", "-", "-@aA_++b", "..1-+1", ".bA_@_A", "0.", "00", "1 -",
        "1b.", "@_+++b+A", "Aa+b", "B+11aa.", "B.a-b1+b", "BA_", "_1_", "a+Ab_B"}},
      {"(?i)AB|a\\.",
       {"+AB_B@a_", "-.B+ba.1", "-_ab", ".1a.aB.b", ".a@a.aa", "1ab", "@bab.+", "A--.-+AB",
        "A.@A-A1", "A.A+", "Ab.a@BB+", "B-1-.BAB", "BaB", "a..a@a.aa", "a.a@a.aa", "a.aA_1B",
        "a@a.aa", "b.-abAB"},
       {"+.", "+0.1", "+_A", "-", "- .", "..1-+1", ".A1", "0.", "00", "1", "1b1", "@A-@@_.",
        "@a_-+", "Aa_a", "_1_-", "a_Aa1-", "b -", "b@ba+1A", "baa"}},
      {"(?i:A)b",
       {".AbbBba", ".ab", "1ab", "@-A@1Ab", "@bab.+", "AabA_b@@", "Ab.a@BB+", "_+1abBA-", "a+Ab_B",
        "ab1+b", "aba", "abb", "b+_ab+@.", "bab"},
       {"+.",        "+0.1",     "-",      "-.b",   "-b@.@", ".",   ".A1",     ".a ",
        ".a@a.aa",   "0.",       "00",     "1  ",   "11_@",  "1a.", "A+b_-a.", "B.Bb-a_",
        "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aaB@+", "b11",   "bAA", "bBa+B"}},
      {"\\Aab\\Z", {"ab"}, {"+.",        "+0.1",     "+b1@",    "-",   "-+Aa",   "-..",
                            "-.B+ba.1",  "-B1+.1",   ".a@a.aa", "0.",  "00",     "@+-B-A1",
                            "@-A@1Ab",   "@b1B",     "B_--.",   "_1_", "_a@-11", "a .",
                            "a..a@a.aa", "a.a@a.aa", "a@a.aa",  "ba@", "bb1"}},
      {"x^a|a",
       {" a", "-.a", "-a1", "..a", ".a@a.aa", "_+1abBA-", "__aa", "_a@A+", "a- ", "a-_1", "a-a",
        "a.", "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aBbaB@b", "aab..", "b-A@AAba"},
       {" -1", "+.", "+0.1", "+1+.b@B", "-", "-11-_1@A", "-A.+AA@", "0.", "00", "A.@A-A1", "B1_-",
        "BA-_BA_", "_-+", "_.@B+", "b+B...bB", "b-b", "b.b", "bb1"}},
      {"(?!.*aa)[ab]*",
       {"+.",        "+0.1",     "-",   "-..",    "-1__b",  "-bb",      ".-BA",   "..1-+1",
        ".@a@@",     ".a@a.aa",  ".aa", "0.",     "00",     "@.1B1-",   "A+-abB", "a+Ab_B",
        "a..a@a.aa", "a.a@a.aa", "a1.", "a@1b1@", "a@a.aa", "aAB+A.@b", "b__A+-"},
       {}},
      {"(?s:.)a",
       {" a.", "+aA++@a", ".a+a@@@a", ".a@a.aa", "1Ba@Aba", "@1.a+@", "Ab.a@BB+", "AbB.a.",
        "BBa.a--", "_-a+a1a", "_@Aa+.a", "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aB+aaB", "aa+_",
        "b+_ab+@.", "bBa-@."},
       {" - ", " .-", "+.", "+0.1", "-", ".-A-", "..", ".b-", "0.", "00", "1.-", "1A_-_", "1B_",
        "ABb@+", "_.-", "___B", "b", "b-.", "b.@AB@"}},
      {"(?=(a|b))[ab.]{2}$",
       {" ab", " b.", "+a.", "-ABa--b.", "-a.", "-ba", ".a.", ".a@a.aa", "1_.aa", "@--bb",
        "B+11aa.", "_b+-bbb", "a-1.+aa", "a..a@a.aa", "a.a@a.aa", "a1@1.a1.aa", "a@a.aa", "bb."},
       {" 11", "+.", "+0.1", "-", "-  ", "-.B+ba.1", "-1bB", "-_1A-A", ".11", "0.", "00", "1._B+1",
        "11.", "@1-a1b_", "A-A+A", "A1@b_1", "B@a1-_", "a b", "b@-BB"}},
      {"(^|[^a])b(?!a)",
       {"-b-", ".AB-bA_A", ".b1", "@1+b.", "@1-a1b_", "A1+@1b", "AA-b1", "_a_b-1", "b-", "b1++",
        "b1.", "b1_+11B", "bB++.@-_", "b_1_"},
       {"+.",  "+0.1",   "+1.BBB++", "-",    "-.B.",      "-ab",      ". ",     ".-++A",
        ".. ", ".a+@1A", ".a@a.aa",  "0.",   "00",        "@BA+@",    "_+--1B", "_-@A",
        "_.-", "_@B@",   "__..+",    "a---", "a..a@a.aa", "a.a@a.aa", "a@a.aa"}},
      {"a(?<!ba)b?",
       {"+a1", "- a", ".a@a.aa", "1a@ab.-", "A_.+a.+", "B1-a@aB", "BBa1+_1", "_1Bb+a", "a ", "a 1",
        "a--", "a..a@a.aa", "a.a@a.aa", "a@a.aa", "aA-a1-.", "aBbaB@b", "aa.", "ab"},
       {"+.", "+0.1", "+@@A1A1.", "-", "--.", "-11", ".  ", ".1_AA", ".bBB", "0.", "00", "@-@A_",
        "ABba1_", "__..+", "_b-_-b1", "b_b-__+", "ba ", "bb+.1B-@", "bb.+b"}},
  };
  for (const PatternCase& one : cases) {
    const json::Value schema = {{"type", "string"}, {"pattern", one.pattern}};
    const auto grammar = compiled(json_schema(json::dump(schema)));
    for (const std::string& text : one.fitting)
      EXPECT_TRUE(grammar_takes(*grammar, json::dump(json::Value(text))))
          << one.pattern << " on " << text;
    for (const std::string& text : one.others)
      EXPECT_FALSE(grammar_takes(*grammar, json::dump(json::Value(text))))
          << one.pattern << " on " << text;
  }
}

TEST(RegexLook, classes_of_unicode_are_kept) {
  EXPECT_TRUE(pattern_fits("\\p{L}+", "a\u00e9\u4e2d"));
  EXPECT_FALSE(pattern_fits("\\p{L}+", "a1"));
  EXPECT_TRUE(pattern_fits("\\p{Script=Greek}+\\p{sc=Cyrl}", "\u03b1\u03b2\u0436"));
  EXPECT_FALSE(pattern_fits("\\p{Script=Greek}", "a"));
  EXPECT_TRUE(pattern_fits("[\\p{Lu}\\p{Nd}]+", "A\u0660"));
  EXPECT_TRUE(pattern_fits("\\P{L}", "1"));
  EXPECT_FALSE(pattern_fits("\\P{L}", "\u00e9"));
  EXPECT_TRUE(pattern_fits("[^\\p{Uppercase_Letter}]", "a"));
  EXPECT_FALSE(pattern_fits("[^\\p{Lu}]", "\u00c9"));
  // Not assigned in the older tables, perhaps a letter in newer ones.
  EXPECT_FALSE(pattern_fits("\\P{L}", "\U0001c000"));
}

// Written is what ECMAScript, Python and Rust all take.
TEST(RegexLook, letters_and_digits_that_dialects_dispute_are_not_written) {
  for (const char* pattern : {"\\d", "\\D", "\\w", "\\W"})
    EXPECT_FALSE(pattern_fits(pattern, "\u0660")) << pattern;  // a digit in Python and Rust
  for (const char* pattern : {"\\w", "\\W", "[^\\w]"})
    EXPECT_FALSE(pattern_fits(pattern, "\u00e9")) << pattern;
  EXPECT_TRUE(pattern_fits("\\W", "\u2014"));
  EXPECT_FALSE(pattern_fits(".*\\b.*", "\u00e9"));
  EXPECT_FALSE(pattern_fits("x|\\B\u00e9\\B", "\u00e9"));
}

TEST(RegexLook, case_is_ignored_where_flags_say_so) {
  EXPECT_TRUE(pattern_fits("(?i)stra\u00dfe k\u00d6ln", "STRA\u00dfE K\u00f6LN"));
  EXPECT_TRUE(pattern_fits("(?i)[a-c]+[^d]", "AbCe"));
  EXPECT_FALSE(pattern_fits("(?i)[^d]", "D"));
  EXPECT_TRUE(pattern_fits("(?i:ab)c", "ABc"));
  EXPECT_FALSE(pattern_fits("(?i:ab)c", "ABC"));
  EXPECT_TRUE(pattern_fits("(?i:a(?-i:b))", "Ab"));
  EXPECT_FALSE(pattern_fits("(?i:a(?-i:b))", "AB"));
  EXPECT_TRUE(pattern_fits("(?i)k", "\u212a"));  // the sign of Kelvin
}

// Where a class has one reading only, it is kept.
TEST(RegexLook, brackets_in_classes_are_kept_where_all_read_them_alike) {
  EXPECT_TRUE(pattern_fits("[^[]+", "a]"));
  EXPECT_TRUE(pattern_fits("[()[{}]+", "[("));
  EXPECT_TRUE(pattern_fits("[^]", "x"));
  EXPECT_TRUE(pattern_fits("[&-]+", "&-"));
}

TEST(RegexLook, stays_within_bounds) {
  const std::vector<std::string> patterns = {"(?!.*(a.{12}b|b.{12}a))(?=.*x.{14}y).*",
                                             "(?:(?=.{3}a)(?!.{5}b).)*\\b(?<=a.{14}).*",
                                             "(?=(?=(?=(?=(?=a+b+)a)a)a)a).*\\b.*\\B.*"};
  for (const std::string& pattern : patterns) {
    const auto grammar = compile(regex(pattern));
    if (!grammar) {
      EXPECT_EQ(grammar.error().code, ErrorCode::kTooLong) << grammar.error().message;
    }
  }
}

}  // namespace
}  // namespace fathom::grammar::tests
