#pragma once
// Random outputs of a constraint: at every step a token out of the mask, preferring to end once long.
//
//   Walk walk = random_walk(*grammar, vocabulary, seed);
//   if (walk.is_complete) EXPECT_TRUE(fits(walk.text));

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/grammar.h"

namespace fathom::grammar::tests {

// A vocabulary and the bytes that it points to.
struct TestVocabulary {
  std::vector<std::string> texts;
  std::vector<bool> special;
  std::shared_ptr<const Vocabulary> vocabulary;
  int32_t eos = 0;

  size_t num_words() const { return (texts.size() + 63) / 64; }
};

inline TestVocabulary make_vocabulary(std::vector<std::string> texts,
                                      const std::vector<std::string>& specials = {}) {
  TestVocabulary result;
  result.texts = std::move(texts);
  result.special.assign(result.texts.size(), false);
  for (const std::string& special : specials) {
    result.texts.push_back(special);
    result.special.push_back(true);
  }
  result.eos = static_cast<int32_t>(result.texts.size());
  result.texts.push_back("<eos>");
  result.special.push_back(true);
  std::vector<VocabularyToken> tokens;
  for (size_t i = 0; i < result.texts.size(); ++i) {
    tokens.push_back({.bytes = result.texts[i], .is_special = result.special[i]});
  }
  result.vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{result.eos});
  return result;
}

// All single bytes.
inline std::vector<std::string> byte_tokens() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  return texts;
}

inline std::shared_ptr<const CompiledGrammar> compiled(const Expression& expression,
                                                       const Limits& limits = {}) {
  auto grammar = compile(expression, limits);
  FATHOM_CHECK(grammar, grammar.error().message);
  return *grammar;
}

// Why a schema is refused; empty: it is not.
inline std::string refusal(const std::string& schema) {
  const auto grammar = compile(json_schema(schema));
  return grammar ? "" : grammar.error().message;
}

// Whether the text, byte by byte, and then the end fit.
inline bool takes_all(const Expression& expression, const std::string& text) {
  static const TestVocabulary bytes = make_vocabulary(byte_tokens());
  const auto constraint = compiled(expression)->new_constraint(bytes.vocabulary);
  for (const char c : text) {
    if (!constraint->accept(static_cast<uint8_t>(c))) return false;
  }
  return constraint->accept(bytes.eos);
}

inline bool accepts(const std::string& schema, const std::string& text) {
  return takes_all(json_schema(schema), text);
}

inline bool bit(const std::vector<uint64_t>& words, int32_t token) {
  const auto idx = static_cast<size_t>(token);
  return (words[idx / 64] >> (idx % 64) & 1) != 0;
}

struct Walk {
  std::string text;
  bool is_complete = false;
  int num_tokens = 0;
};

// `prefer_ends`: after this many tokens the shortest way out is looked for: eos, then tokens that close.
inline Walk random_walk(core::TokenConstraint& constraint, const TestVocabulary& vocabulary,
                        uint64_t seed, int max_tokens, int prefer_ends) {
  constexpr std::string_view kClosing = "\"}]";
  std::mt19937_64 random(seed);
  std::vector<uint64_t> words(vocabulary.num_words());
  Walk walk;
  for (; walk.num_tokens < max_tokens; ++walk.num_tokens) {
    constraint.fill_mask(words);
    std::vector<int32_t> allowed, closing;
    for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.texts.size()); ++id) {
      if (!bit(words, id)) continue;
      allowed.push_back(id);
      const std::string& text = vocabulary.texts[static_cast<size_t>(id)];
      if (text.find_first_not_of(kClosing) == text.npos) closing.push_back(id);
    }
    FATHOM_CHECK(!allowed.empty(), "an empty mask after " << walk.text);
    const bool must_end = walk.num_tokens >= prefer_ends;
    int32_t token = allowed[random() % allowed.size()];
    if (must_end && !closing.empty()) token = closing[random() % closing.size()];
    if ((must_end || random() % 4 == 0) && bit(words, vocabulary.eos)) token = vocabulary.eos;
    FATHOM_CHECK(constraint.accept(token), "a masked token is refused after " << walk.text);
    if (token == vocabulary.eos) {
      walk.is_complete = true;
      return walk;
    }
    walk.text += vocabulary.texts[static_cast<size_t>(token)];
  }
  return walk;
}

}  // namespace fathom::grammar::tests
