#include "grammar/plain_run.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fathom::grammar::tests
