#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/place_masks.h"
#include "grammar/vocabulary.h"
#include "tests/grammar/automaton_of.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {
namespace {

// Bytes, and words of up to 40 characters in one to four bytes each, some with a character that is not plain.
std::vector<std::string> many_words(int count) {
  const std::vector<std::string> characters = {"a", "b",      "c",      "d",         " ",
                                               "z", "\u00e9", "\u4e2d", "\U0001F600"};
  std::mt19937_64 random(3);
  std::vector<std::string> texts = byte_tokens();
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (auto length = 2 + random() % (i % 16 == 0 ? 39 : 7); length > 0; --length) {
      text += characters[random() % characters.size()];
    }
    if (i % 8 == 0) text.insert(random() % 2 * text.size(), i % 16 == 0 ? "\"" : "\n");
    texts.push_back(text);
  }
  return texts;
}

// Every bit of the masks along a walk against the same grammar fed byte by byte over single bytes.
void expect_masks_are_exact(const Expression& expression, const TestVocabulary& vocabulary,
                            uint64_t seed) {
  static const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto grammar = compiled(expression), reference = compiled(expression);
  const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
  const auto by_bytes = reference->new_constraint(bytes.vocabulary);
  std::vector<uint64_t> words(vocabulary.num_words());
  std::mt19937_64 random(seed);
  for (int step = 0; step < 12; ++step) {
    constraint->fill_mask(words);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.eos; ++id) {
      const std::string& text = vocabulary.texts[static_cast<size_t>(id)];
      const auto copy = by_bytes->clone();
      bool fits = true;
      for (const char c : text) fits = fits && copy->accept(static_cast<uint8_t>(c));
      ASSERT_EQ(bit(words, id), fits) << "step " << step << " token " << text;
      if (fits) allowed.push_back(id);
    }
    if (allowed.empty()) return;
    const int32_t token = allowed[random() % allowed.size()];
    ASSERT_TRUE(constraint->accept(token));
    for (const char c : vocabulary.texts[static_cast<size_t>(token)]) {
      ASSERT_TRUE(by_bytes->accept(static_cast<uint8_t>(c)));
    }
  }
}

TEST(PlaceMasks, are_exact_where_nearly_everything_is_plain) {
  const TestVocabulary vocabulary = make_vocabulary(many_words(600));
  const std::vector<Expression> expressions = {
      json_schema(R"({"type":"string"})"),
      json_schema(R"({"type":"string","maxLength":9})"),
      json_schema(
          R"({"type":"array","items":{"anyOf":[{"type":"string","maxLength":5},{"type":"string","maxLength":40},{"type":"string","minLength":12}]}})"),
      json_schema(R"({"type":"string","pattern":"a.{4}b|b.{9}c"})"),
      regex(".{50}"),
      regex("(a.{5}b|b.{6}c|c.{7}d)*"),
      regex(".*(a.{5}b|b.{6}c|c.{40}d).*"),
      regex("[^\u4e2d]*b?"),
      regex("([^z]|z[^z]){0,20}"),
      regex("(.|\\n){3,8}\"?"),
      ebnf("root ::= word (\" \" word)*\nword ::= [a-z\u00e9]+"),
      text_until({"z a", -1})};
  for (size_t i = 0; i < expressions.size(); ++i) {
    SCOPED_TRACE(i);
    for (uint64_t seed = 0; seed < 2; ++seed)
      expect_masks_are_exact(expressions[i], vocabulary, seed);
  }
}

// Words with many beginnings in common; some end within a character, some are no UTF-8 in the middle.
std::vector<std::string> words_of_few_beginnings(int count) {
  const std::vector<std::string> characters = {"a",      "b",      "e",          "9",      "-",
                                               ":",      "/",      ".",          "\u00e9", "\u00a0",
                                               "\u4e2d", "\u3000", "\U0001F600", "@"};
  std::mt19937_64 random(11);
  std::vector<std::string> texts = byte_tokens();
  for (int i = 0; i < count; ++i) {
    std::string text = characters[random() % 3];
    for (auto length = 1 + random() % 6; length > 0; --length) {
      text += characters[random() % (i % 3 == 0 ? characters.size() : 4)];
    }
    if (i % 16 == 0) text.pop_back();
    if (i % 50 == 0) text.insert(random() % text.size(), i % 100 == 0 ? "\xA9" : "\xED\xA0\x80");
    texts.push_back(text);
  }
  return texts;
}

TEST(PlaceMasks, are_exact_where_most_characters_lead_on_together) {
  const TestVocabulary vocabulary = make_vocabulary(words_of_few_beginnings(900));
  const std::vector<Expression> expressions = {
      regex("[^:\\s]+:[^:\\s]+(:[^\\s]+)?"),
      regex("[-\\w]+/[-\\w]+(\\.[-\\w]+)*"),
      regex("[^\u4e2d]{1,9}a?"),
      regex("[ab9\u00e9\u4e00-\u9fff]{2,7}b"),
      regex("([^:]|:[^:])*"),
      regex("(a[^9]*|b[^.]*)+"),
      json_schema(R"({"type":"string","format":"email","maxLength":30})"),
      json_schema(R"({"type":"string","pattern":"^[^:/]+$","minLength":2,"maxLength":8})")};
  for (size_t i = 0; i < expressions.size(); ++i) {
    SCOPED_TRACE(i);
    for (uint64_t seed = 0; seed < 3; ++seed)
      expect_masks_are_exact(expressions[i], vocabulary, seed);
  }
}

// Behind some characters that may be any a few must be certain ones; words and characters are both counted; what may
// follow depends on words that came before.
TEST(PlaceMasks, are_exact_where_any_characters_come_before_certain_ones) {
  const TestVocabulary vocabulary = make_vocabulary(many_words(600));
  const std::vector<Expression> expressions = {
      regex("a.{3}b.*"),
      regex(".{2}[bc\u00e9]?.{4}\u4e2d(a|bb)*"),
      regex(".{1}(d.|z)+"),
      json_schema(R"({"type":"string","pattern":"^.{3}[b-d ]{1,4}$"})"),
      json_schema(R"({"type":"string","pattern":"^(?:\\S+\\s+){0,3}\\S+$","maxLength":24})"),
      json_schema(
          R"({"type":"string","maxLength":14,"oneOf":[{"pattern":"abc"},{"pattern":"dad"},{"pattern":"z z"}]})"),
      json_schema(
          R"({"type":"object","patternProperties":{"a[b-d]+z":{"type":"null"},"da_":{"type":"null"}},"additionalProperties":{"type":"integer"}})")};
  for (size_t i = 0; i < expressions.size(); ++i) {
    SCOPED_TRACE(i);
    for (uint64_t seed = 0; seed < 2; ++seed)
      expect_masks_are_exact(expressions[i], vocabulary, seed);
  }
}

// Enough tokens that places of one behaviour share what was found. The reference is arithmetic.
TEST(PlaceMasks, of_counted_characters_allow_what_fits_into_the_count) {
  std::vector<std::string> texts = byte_tokens();
  std::mt19937_64 random(5);
  for (int i = 0; i < 30'000; ++i) {
    std::string text;
    for (auto length = 3 + random() % (i % 500 == 0 ? 50 : 6); length > 0; --length) {
      text += "abcdefghijklmnopqrstuvwxyz AB"[random() % 29];
    }
    texts.push_back(text);
  }
  const TestVocabulary vocabulary = make_vocabulary(std::move(texts));
  const auto constraint = compiled(regex("[a-z ]{1,90}"))->new_constraint(vocabulary.vocabulary);
  std::vector<uint64_t> words(vocabulary.num_words());
  for (size_t left = 90; left > 0;) {
    constraint->fill_mask(words);
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < vocabulary.eos; ++id) {
      const std::string& text = vocabulary.texts[static_cast<size_t>(id)];
      const bool fits =
          text.size() <= left && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz ") == text.npos;
      ASSERT_EQ(bit(words, id), fits) << left << " left, token " << text;
      if (fits) allowed.push_back(id);
    }
    const int32_t token = allowed[random() % allowed.size()];
    ASSERT_TRUE(constraint->accept(token));
    left -= vocabulary.texts[static_cast<size_t>(token)].size();
  }
}

// With hardly any memory the places are dropped after every step: the same masks, and nested calls are kept.
TEST(PlaceMasks, that_are_dropped_for_want_of_memory_come_again) {
  const TestVocabulary vocabulary = make_vocabulary(many_words(50));
  const std::vector<Expression> expressions = {
      json_object(), json_schema(R"({"type":"string","pattern":"a.{4}b|b.{9}c"})"),
      ebnf("root ::= \"(\" root \")\" root | \"\""),
      ebnf("root ::= root root | root \"b\" | \"a\" | [ab] \"b\"? "),
      ebnf("root ::= list\nlist ::= list \",\" item | item\nitem ::= \"a\" | \"(\" list \")\"")};
  for (size_t i = 0; i < expressions.size(); ++i) {
    const auto usual = compiled(expressions[i])->new_constraint(vocabulary.vocabulary);
    const auto small = compiled(expressions[i], {.max_mask_cache_bytes = 1})
                           ->new_constraint(vocabulary.vocabulary);
    std::vector<uint64_t> words(vocabulary.num_words()), other(vocabulary.num_words());
    std::mt19937_64 random(i);
    for (int step = 0; step < 60; ++step) {
      usual->fill_mask(words);
      small->fill_mask(other);
      ASSERT_EQ(words, other) << "grammar " << i << " step " << step;
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < vocabulary.eos; ++id) {
        if (bit(words, id)) allowed.push_back(id);
      }
      if (allowed.empty()) break;
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(usual->accept(token));
      ASSERT_TRUE(small->accept(token));
    }
  }
}

// One byte leads to hundreds of items there, and what a shortcut finds out may cost more than the mask. A hundred
// million of the work are done in a second.
TEST(PlaceMasks, take_bounded_work_where_calls_lie_in_each_other) {
  const TestVocabulary vocabulary = make_vocabulary(many_words(30000));
  for (const char* rules :
       {R"(root ::= .+ root* ... "LLL")", R"(root ::= (root | .) (root | .)? (root | .)* "x"?)",
        "a ::= . b* | b .\nb ::= a a | . a?\nroot ::= a* b* \"q\"?"}) {
    SCOPED_TRACE(rules);
    const Automaton automaton = automaton_of(ebnf(rules));
    PlaceMasks masks(automaton, vocabulary.vocabulary, int64_t{1} << 30);
    std::vector<uint64_t> words(vocabulary.num_words());
    std::mt19937_64 random(5);
    for (int text = 0; text < 6; ++text) {
      int32_t place = masks.start();
      for (int step = 0; step < 25; ++step) {
        const int64_t before = masks.work();
        masks.fill(place, words);
        EXPECT_LT(masks.work() - before, 400'000) << "text " << text << ", step " << step;
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < vocabulary.eos; ++id) {
          if (bit(words, id)) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        place = masks.advance(place, allowed[random() % allowed.size()]);
        ASSERT_NE(place, Places::kNowhere);
      }
    }
  }
}

TEST(PlainCharacters, are_whole_characters_of_json_strings) {
  EXPECT_EQ(plain_characters("abc d"), 5);
  EXPECT_EQ(plain_characters("\u00e9\u4e2d\U0001F600"), 3);
  EXPECT_EQ(plain_characters(std::string(32, 'a')), 32);
  for (const std::string& text :
       {std::string("a\""), std::string("\\"), std::string("\n"), std::string("\xC3"),
        std::string("\xA9"), std::string("\u2028"), std::string(33, 'a')}) {
    EXPECT_EQ(plain_characters(text), kNotPlain) << text;
  }
}

}  // namespace
}  // namespace fathom::grammar::tests
