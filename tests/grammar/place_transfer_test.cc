#include "grammar/place_transfer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/grammar/automaton_of.h"

namespace fathom::grammar::tests {
namespace {

struct Case {
  const char* rules;
  const char* letters;  // of the texts that are tried
};

// Depth, left recursion, rules that refer to each other, calls that lie in each other at every character.
constexpr Case kCases[] = {
    {R"x(root ::= "(" root ")" root | "")x", "()"},
    {R"(root ::= root root | root "b" | "a" | [ab] "b"? )", "ab"},
    {"root ::= list\nlist ::= list \",\" item | item\nitem ::= \"a\" | \"(\" list \")\"", "a,()"},
    {"root ::= one | two\none ::= \"a\" two | one \"b\" | \"a\"\ntwo ::= \"b\" one | two \"a\" | "
     "\"b\"",
     "ab"},
    {R"(root ::= .+ root* ... "LLL")", "La"},
};

class TransferTest : public testing::TestWithParam<int> {
 protected:
  char any_letter(const Case& c) {
    const std::string_view letters = c.letters;
    return letters[random_() % letters.size()];
  }
  // A letter that fits, of some tried.
  int32_t step(Places& places, int32_t at, const Case& c) {
    for (int i = 0; i < 20; ++i) {
      const int32_t next = places.next(at, static_cast<uint8_t>(any_letter(c)));
      if (next != Places::kNowhere) return next;
    }
    return at;
  }
  void expect_the_same_texts(Places& from, int32_t a, Places& to, int32_t b, const Case& c) {
    for (int text = 0; text < 60; ++text) {
      int32_t x = a, y = b;
      for (int i = 0; i < 25 && x != Places::kNowhere; ++i) {
        ASSERT_EQ(from.may_end(x), to.may_end(y));
        const auto letter = static_cast<uint8_t>(any_letter(c));
        x = from.next(x, letter);
        y = to.next(y, letter);
        ASSERT_EQ(x == Places::kNowhere, y == Places::kNowhere) << "letter " << i;
      }
    }
  }
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(seeds, TransferTest, testing::Range(0, 8),
                         [](const auto& info) { return "seed_" + std::to_string(info.param); });

TEST_P(TransferTest, a_place_takes_the_same_texts_wherever_it_was_taken_over) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.rules);
    const Automaton automaton = automaton_of(ebnf(c.rules));
    for (const int64_t slice : {1, 7, 100'000}) {
      Places from(automaton), to(automaton);
      // Others have been there before.
      for (int32_t at = to.start(), i = 0; i < 10; ++i) at = step(to, at, c);
      int32_t at = from.start();
      for (int i = 0; i < 12; ++i) at = step(from, at, c);
      PlaceTransfer transfer(from, to);
      std::optional<int32_t> there;
      for (int slices = 0; !(there = transfer.go_on(at, slice)); ++slices) {
        ASSERT_LT(slices, 100'000);
        // The sequence goes on meanwhile, for a while.
        if (slices % 3 == 0 && slices < 30) at = step(from, at, c);
      }
      expect_the_same_texts(from, at, to, *there, c);
    }
  }
}

TEST(PlaceTransfer, does_no_more_at_a_time_than_it_is_told) {
  const Automaton automaton = automaton_of(ebnf(R"x(root ::= "(" root ")" | "a")x"));
  Places from(automaton), to(automaton);
  int32_t at = from.start();
  for (int i = 0; i < 1000; ++i) at = from.next(at, '(');
  PlaceTransfer transfer(from, to);
  int slices = 1;
  while (!transfer.go_on(at, 100)) ++slices;
  EXPECT_GE(slices, 10);
  EXPECT_LE(slices, 100);
}

}  // namespace
}  // namespace fathom::grammar::tests
