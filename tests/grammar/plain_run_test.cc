#include "grammar/plain_run.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/grammar/automaton_of.h"

namespace fathom::grammar::tests {
namespace {

// Calls of the rule lie in each other at every character, so that a byte leads to hundreds of items, each of which may
// be called by hundreds. Work is counted, not timed: a hundred million of it are done in a second.
TEST(PlainRun, gives_a_length_up_that_costs_too_much) {
  const Automaton automaton = automaton_of(ebnf(R"(root ::= .+ root* ... "LLLLLLLLLLLoro")"));
  Places places(automaton);
  PlainRun run(places);
  int32_t at = places.start();
  for (int i = 0; i < 40; ++i) {
    at = places.next(at, 'L');
    ASSERT_NE(at, Places::kNowhere);
    const int64_t before = places.work();
    EXPECT_LE(run.length(at).characters, kMaxPlainCharacters);
    EXPECT_LT(places.work() - before, 150'000) << "behind " << i + 1 << " characters";
  }
}

bool starts_endless(const Expression& expression) {
  const Automaton automaton = automaton_of(expression);
  const EndlessText endless(automaton);
  Places places(automaton);
  for (const Item& item : places.items(places.start())) {
    if (endless.holds(item.state)) return true;
  }
  return false;
}

TEST(EndlessText, holds_where_plain_text_goes_on_whatever_it_is) {
  for (const char* rules :
       {R"(root ::= [^"]*)", R"(root ::= [^"]* | "a")", R"(root ::= ([^"\\] | "\\" .)* "e")",
        R"(root ::= [^"]{3,})",
        R"(root ::= char* "\"" 
char ::= [^"])",
        R"(root ::= inner "x"
inner ::= [^"]*)",
        R"(root ::= "a" ("b" ("c" ([^"] [^"]*)? | [^c"] [^"]*)? | [^b"] [^"]*)? | [^a"] [^"]*)"}) {
    EXPECT_TRUE(starts_endless(ebnf(rules))) << rules;
  }
  for (const char* rules : {R"(root ::= [^"]{0,40})", R"(root ::= [^":]*)", R"(root ::= [ -~]*)",
                            R"(root ::= root | root root | "a")", R"(root ::= one | "b"
one ::= root? one | "a")",
                            R"(root ::= [^"A]{2} [^"]*)", R"(root ::= inner inner
inner ::= [^"])"}) {
    EXPECT_FALSE(starts_endless(ebnf(rules))) << rules;
  }
}

// As names are that follow a pattern or do not: letters beyond ASCII are a rule, and so is what is none.
TEST(EndlessText, holds_where_rules_take_each_character_together) {
  const std::string text =
      R"(root ::= ([a-z] | letter)* (([\x00-`{-\x7f] | other) rest)?
rest ::= ([^"])*
letter ::= [\u00e0-\u017e\u4e00-\u9fff]
)";
  EXPECT_TRUE(
      starts_endless(ebnf(text + R"(other ::= [\u0080-\u00df\u017f-\u4dff\ua000-\U0010ffff])")));
  for (const char* fewer : {R"(other ::= [\u0080-\u00df\u0180-\u4dff\ua000-\U0010ffff])",
                            R"(other ::= [\u0080-\u00df\u017f-\u4dff\ua000-\U000fffff])",
                            R"(other ::= [\u0080-\U0010ffff] "x")"}) {
    EXPECT_FALSE(starts_endless(ebnf(text + fewer))) << fewer;
  }
}

}  // namespace
}  // namespace fathom::grammar::tests
