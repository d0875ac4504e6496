#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/tool_calls.h"
#include "tests/grammar/backtracking_matcher.h"
#include "tests/grammar/random_walk.h"
#include "tests/sanitized.h"

namespace fathom::grammar::tests {
namespace {

// Sanitizers make these tests some thirty times slower.
uint64_t num_seeds(uint64_t usual) { return kIsSanitized ? 1 : usual; }

const TestVocabulary& byte_vocabulary() {
  static const TestVocabulary vocabulary = make_vocabulary(byte_tokens());
  return vocabulary;
}

// Single bytes, and pieces that span several parts of JSON, words and rules.
TestVocabulary mixed_vocabulary() {
  std::vector<std::string> texts = byte_tokens();
  for (const char* text :
       {"{\"",    "\":", "\": ", "\",",  "\"}",       "\"},", "},{",   "\", \"", "tr",       "true",
        "rue}",   "[[",  "]]",   "]}",   "12",        "3,",   "-0",    ".5",     "e1",       "\\u",
        "\\\"",   "ab",  "aab",  "ba",   "bb",        "((",   "))",    ")(",     "\xC3\xA9", "\xC3",
        "\xA9\"", "  ",  "\n  ", "name", "name\":\"", "ull",  "null]", "a\"}",   "a,b"}) {
    texts.emplace_back(text);
  }
  return make_vocabulary(std::move(texts), {"<think>", "<call>", "<end>"});
}

const std::vector<Expression>& grammars() {
  static const std::vector<Expression> all = {
      json_object(),
      json_schema(
          R"({"type":"object","properties":{"name":{"type":"string"},"t":{"type":"boolean"},"n":{"type":"array","items":{"type":["integer","null"]}}},"required":["name"]})"),
      json_schema(
          R"({"type":"array","items":{"type":"array","items":{"type":"number","minimum":-2,"maximum":31.5}}})"),
      json_schema(
          R"({"type":"object","properties":{"ab":{}},"additionalProperties":{"$ref":"#"}})"),
      regex("(a|b)*abb(ab|aab)?"), regex("[^b]+b.{2,3}"), regex("(.*a){3}"),
      ebnf("root ::= \"\" | \"(\" root \")\" root | \"ab\""),
      // Left recursive and ambiguous.
      ebnf("root ::= root root | root \"b\" | \"a\" | [ab] \"b\"? "),
      ebnf("root ::= item (\",\" item)*\nitem ::= \"a\" item \"b\" | \"a\" item \")\" | "
           "empty\nempty ::= \"\""),
      sequence({text_until({"<think>", 256 + 39}), choice({literal("ab"), token(256 + 40)})}),
      sequence({text_until({"ab\"}", -1}), literal("ba")}),
      sequence({any_text("ab"), token(256 + 41)})};
  return all;
}

TEST(Constraint, mask_is_what_accept_takes) {
  const TestVocabulary vocabulary = mixed_vocabulary();
  ASSERT_EQ(vocabulary.texts[256 + 39], "<think>");
  std::vector<uint64_t> words(vocabulary.num_words());
  for (size_t idx = 0; idx < grammars().size(); ++idx) {
    const auto grammar = compiled(grammars()[idx]);
    for (uint64_t seed = 0; seed < num_seeds(6); ++seed) {
      std::mt19937_64 random(seed);
      const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
      std::string text;
      for (int step = 0; step < 40; ++step) {
        constraint->fill_mask(words);
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.texts.size()); ++id) {
          const bool is_taken = constraint->clone()->accept(id);
          ASSERT_EQ(bit(words, id), is_taken)
              << "grammar " << idx << " seed " << seed << " token "
              << vocabulary.texts[static_cast<size_t>(id)] << " after " << text;
          if (is_taken && id != vocabulary.eos) allowed.push_back(id);
        }
        if (allowed.empty()) break;
        const int32_t token = allowed[random() % allowed.size()];
        ASSERT_TRUE(constraint->accept(token));
        text += vocabulary.texts[static_cast<size_t>(token)];
      }
    }
  }
}

// Tokens of more bytes than the states of one class are the same for, over all kinds of states that count.
TEST(Constraint, masks_of_counted_states_hold_for_long_tokens_too) {
  std::vector<std::string> texts = byte_tokens();
  for (int length : {2, 3, 5, 11, 12, 13, 14, 17, 24, 40}) {
    const auto size = static_cast<size_t>(length);
    texts.push_back(std::string(size, 'a'));
    texts.push_back(std::string(size - 1, 'a') + "\"");
    texts.push_back(std::string(size - 1, 'b') + "]");
    texts.push_back(std::string(size - 2, 'a') + "\",");
    texts.push_back("\"" + std::string(size - 1, 'a'));
    texts.push_back(std::string(size - 2, 'b') + "\xC3\xA9");
  }
  texts.emplace_back("a\",\"bbbbbbbbbbbbb\",\"");
  texts.emplace_back("\\u00e9\\u00e9\\u00e9\\u00e9");
  const TestVocabulary vocabulary = make_vocabulary(std::move(texts));
  const std::vector<Expression> counted = {
      regex("[ab ]{1,60}"),
      regex("(a{20}|b{30}){2}"),
      regex("[ab]{30,}"),
      json_schema(R"({"type":"string","minLength":20,"maxLength":50})"),
      json_schema(R"({"type":"string","minLength":20,"maxLength":300})"),
      json_schema(R"({"type":"array","items":{"type":"string","maxLength":16},"maxItems":3})"),
      ebnf("root ::= \"[\" item{1,20} \"]\"\nitem ::= \"a\" | \"b\" item")};
  std::vector<uint64_t> words(vocabulary.num_words());
  for (size_t idx = 0; idx < counted.size(); ++idx) {
    const auto grammar = compiled(counted[idx]);
    for (uint64_t seed = 0; seed < num_seeds(4); ++seed) {
      std::mt19937_64 random(seed);
      const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
      for (int step = 0; step < 50; ++step) {
        constraint->fill_mask(words);
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < vocabulary.eos; ++id) {
          ASSERT_EQ(bit(words, id), constraint->clone()->accept(id))
              << "grammar " << idx << " seed " << seed << " step " << step << " token "
              << vocabulary.texts[static_cast<size_t>(id)];
          const bool is_word =
              vocabulary.texts[static_cast<size_t>(id)].find('a') != std::string::npos;
          if (bit(words, id) && (allowed.empty() || is_word || random() % 8 == 0))
            allowed.push_back(id);
        }
        if (allowed.empty()) break;
        ASSERT_TRUE(constraint->accept(allowed[random() % allowed.size()]));
      }
    }
  }
}

// The last 701st byte is an a: as many ways as bytes are followed, more than are kept between tokens.
TEST(Constraint, more_ways_than_are_kept_never_make_mask_and_accept_disagree) {
  std::vector<std::string> texts = byte_tokens();
  for (const char* text : {"ab", "ba", "aaaa", "bbbb", "abababab", "aaaaaaaaaaaaaaaaaaaa"}) {
    texts.emplace_back(text);
  }
  const TestVocabulary vocabulary = make_vocabulary(std::move(texts));
  const auto grammar = compiled(regex("(a|b)*a(a|b){700}"));
  int num_complete = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
    const Walk walk = random_walk(*constraint, vocabulary, seed, 2000, 300);
    if (!walk.is_complete) continue;
    ++num_complete;
    ASSERT_GT(walk.text.size(), 700u);
    EXPECT_EQ(walk.text[walk.text.size() - 701], 'a') << "seed " << seed;
  }
  EXPECT_GT(num_complete, 0);
}

TEST(Constraint, where_the_vocabulary_lacks_a_byte_nothing_is_allowed) {
  const TestVocabulary vocabulary = make_vocabulary({"a", "c"});
  const auto constraint = compiled(regex("ab|cc"))->new_constraint(vocabulary.vocabulary);
  std::vector<uint64_t> words(vocabulary.num_words());
  ASSERT_TRUE(constraint->accept(0));
  constraint->fill_mask(words);
  EXPECT_EQ(words[0], 0u) << "the text is incomplete: it must not look finished";
  EXPECT_FALSE(constraint->accept(vocabulary.eos));
}

TEST(Constraint, a_refused_token_changes_nothing) {
  const auto constraint = compiled(regex("abc"))->new_constraint(byte_vocabulary().vocabulary);
  EXPECT_FALSE(constraint->accept('b'));
  EXPECT_FALSE(constraint->accept(-1));
  EXPECT_FALSE(constraint->accept(1'000'000));
  EXPECT_FALSE(constraint->accept(byte_vocabulary().eos));
  for (const char c : {'a', 'b', 'c'}) EXPECT_TRUE(constraint->accept(c));
  EXPECT_FALSE(constraint->accept('c'));
  EXPECT_TRUE(constraint->accept(byte_vocabulary().eos));
}

TEST(Constraint, clones_are_independent) {
  const auto constraint = compiled(regex("ab|ac"))->new_constraint(byte_vocabulary().vocabulary);
  ASSERT_TRUE(constraint->accept('a'));
  const auto other = constraint->clone();
  EXPECT_TRUE(constraint->accept('b'));
  EXPECT_TRUE(other->accept('c'));
  EXPECT_FALSE(other->accept('b'));
}

TEST(Constraint, after_the_end_only_the_end_is_allowed) {
  const auto constraint = compiled(literal("a"))->new_constraint(byte_vocabulary().vocabulary);
  ASSERT_TRUE(constraint->accept('a'));
  std::vector<uint64_t> words(byte_vocabulary().num_words());
  for (int step = 0; step < 2; ++step) {
    constraint->fill_mask(words);
    for (int32_t id = 0; id <= byte_vocabulary().eos; ++id) {
      EXPECT_EQ(bit(words, id), id == byte_vocabulary().eos);
    }
    EXPECT_TRUE(constraint->accept(byte_vocabulary().eos));
  }
}

TEST(Constraint, deep_nesting_and_long_texts_stay_right) {
  const auto grammar = compiled(ebnf("root ::= \"(\" root \")\" | \"\""));
  const auto constraint = grammar->new_constraint(byte_vocabulary().vocabulary);
  constexpr int kDepth = 3000;
  for (int i = 0; i < kDepth; ++i) ASSERT_TRUE(constraint->accept('('));
  for (int i = 0; i < kDepth; ++i) {
    ASSERT_FALSE(constraint->clone()->accept(byte_vocabulary().eos));
    ASSERT_TRUE(constraint->accept(')'));
  }
  EXPECT_FALSE(constraint->accept(')'));
  EXPECT_TRUE(constraint->accept(byte_vocabulary().eos));
}

TEST(Regex, agrees_with_a_backtracking_matcher) {
  const std::vector<std::string> patterns = {
      "a*b",      "(a|b)*abb", "a{2,4}", "(ab?){1,3}c",  "[a-c]+d?", "[^a]b",       "^ab$",
      "a+?b*?",   "(?:a|)b",   ".b.",    "(a(b(c)?)?)?", "",         "\\d?a",       "(a|ab)(c|bcd)",
      "(?<x>a)b", "[\\w]c",    "a{0}b",  "a{3}",         "(a*)*b",   "\\x61\\u0062"};
  std::mt19937_64 random(7);
  for (const std::string& pattern : patterns) {
    const auto grammar = compiled(regex(pattern));
    for (int i = 0; i < 400; ++i) {
      std::string text;
      for (auto length = random() % 7; length > 0; --length) text += "abcd1\n"[random() % 6];
      const auto constraint = grammar->new_constraint(byte_vocabulary().vocabulary);
      bool fits = true;
      for (const char c : text) fits = fits && constraint->accept(c);
      fits = fits && constraint->accept(byte_vocabulary().eos);
      EXPECT_EQ(fits, matches_whole(pattern, text)) << pattern << " on " << text;
    }
  }
}

TEST(Regex, names_what_is_wrong_and_where) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(b", "( without )"},       {"a)b", ") without ("},   {"[a", "[ without ]"},
      {"*a", "nothing to repeat"},  {"a**", "needs a group"}, {"a\\q", "\\q is not supported"},
      {"(a)\\1", "backreferences"}, {"(?>a)", "(?>"},         {"(?x:a)", "flag x"},
      {"a{3,2}", "least count"},    {"[z-a]", "wrong order"}, {"\xff", "UTF-8"},
      {"a\\", "backslash"},         {"\\ud800", "Unicode"},   {"[\\d-z]", "range"},
      {"[[:alpha:]]", "[:alpha:]"}, {"[a-z&&[^b]]", "&&"},    {"[^]a]", "begins with ]"},
      {"[a[b]]", "[ in a class"},   {"\\p{Foo}", "\\p{Foo}"}, {"a(?i)b", "flags"}};
  for (const auto& [pattern, word] : cases) {
    const auto grammar = compile(regex(pattern));
    ASSERT_FALSE(grammar) << pattern;
    EXPECT_NE(grammar.error().message.find(word), std::string::npos)
        << pattern << " -> " << grammar.error().message;
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
  }
}

class ToolCalls : public testing::Test {
 protected:
  TestVocabulary vocabulary = make_vocabulary(
      byte_tokens(), {"</think>", "<calls>", "</calls>", "<call>", "<sep>", "</call>"});
  Marker special(const std::string& text) const {
    for (size_t i = 256; i < vocabulary.texts.size(); ++i) {
      if (vocabulary.texts[i] == text) return {text, static_cast<int32_t>(i)};
    }
    return {text, -1};
  }
  ToolCallSyntax syntax() const {
    using Kind = ToolCallStep::Kind;
    return {special("<calls>"),
            special("</calls>"),
            special("<call>"),
            {{Kind::kName},
             {Kind::kLiteral, special("<sep>")},
             {Kind::kSpace},
             {Kind::kObject},
             {Kind::kSpace},
             {Kind::kLiteral, special("</call>")}}};
  }
  const std::vector<Tool> tools = {
      {"add", R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]})"},
      {"any", ""}};

  // <...> that is a special token is fed as one, everything else byte by byte.
  bool fits(const ToolCallOptions& options, const std::string& text) const {
    const auto constraint =
        compiled(tool_calls(syntax(), tools, options))->new_constraint(vocabulary.vocabulary);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text[at] == '<' ? text.find('>', at) : text.npos;
      const Marker marker = end == text.npos ? Marker{} : special(text.substr(at, end + 1 - at));
      const int32_t token = marker.token >= 0 ? marker.token : static_cast<uint8_t>(text[at]);
      if (!constraint->accept(token)) return false;
      at = marker.token >= 0 ? end + 1 : at + 1;
    }
    return constraint->accept(vocabulary.eos);
  }
};

TEST_F(ToolCalls, required_calls_follow_the_schemas) {
  const ToolCallOptions options = {.required = true};
  EXPECT_TRUE(fits(options, "<calls><call>add<sep>{\"x\": 3}</call></calls>"));
  EXPECT_TRUE(
      fits(options,
           "<calls><call>any<sep>{\"y\": []}\n</call>\n<call>add<sep>{\"x\":3}</call></calls>"));
  EXPECT_FALSE(fits(options, "<calls><call>add<sep>{\"y\": 3}</call></calls>"));
  EXPECT_FALSE(fits(options, "<calls><call>sub<sep>{}</call></calls>"));
  EXPECT_FALSE(fits(options, "<calls></calls>"));
  EXPECT_FALSE(fits(options, "hello"));
  EXPECT_FALSE(fits({.required = true, .parallel = false},
                    "<calls><call>any<sep>{}</call><call>any<sep>{}</call></calls>"));
}

TEST_F(ToolCalls, optional_calls_follow_free_text) {
  const ToolCallOptions options = {};
  EXPECT_TRUE(fits(options, "hello < world"));
  EXPECT_TRUE(fits(options, ""));
  EXPECT_TRUE(fits(options, "I look.<calls><call>any<sep>{}</call></calls>"));
  EXPECT_FALSE(fits(options, "I look.<calls>"));
  EXPECT_FALSE(fits(options, "I look.<calls><call>add<sep>{}</call></calls>"));
  EXPECT_FALSE(fits(options, "<call>"));
}

TEST_F(ToolCalls, reasoning_comes_first_where_the_prompt_opened_it) {
  const ToolCallOptions options = {.required = true, .reasoning_end = special("</think>")};
  EXPECT_TRUE(fits(options, "hm {\"</think>\n\n<calls><call>any<sep>{}</call></calls>"));
  EXPECT_FALSE(fits(options, "<calls><call>any<sep>{}</call></calls>"));
  EXPECT_TRUE(fits({.reasoning_end = special("</think>")}, "hm</think>fine"));
  EXPECT_FALSE(fits({.reasoning_end = special("</think>")}, "hm"));
}

TEST_F(ToolCalls, a_marker_cannot_be_spelled_out) {
  const auto constraint =
      compiled(tool_calls(syntax(), tools, {}))->new_constraint(vocabulary.vocabulary);
  for (const char c : std::string("<calls")) ASSERT_TRUE(constraint->accept(c));
  EXPECT_FALSE(constraint->accept('>'));
}

}  // namespace
}  // namespace fathom::grammar::tests
