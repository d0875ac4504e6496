// Random texts of schemas: what is written when a token out of the mask is taken at every step.
// tools/constrained/walk.py drives it and judges the texts.
//
//   build/release/bench/walk_schemas TOKENIZER_DIR < schemas.jsonl > texts.jsonl
//
// A line in: {"id": ..., "schema": SCHEMA, "seeds": [1, 2, ...], "max_tokens": 200, "prefer_ends": 30}, and perhaps
// "space" and "unlisted" (JsonStyle). A line out: {"id", and "refusal": sentence or "texts": [finished texts],
// "num_unfinished": those that max_tokens cut, "num_stuck": those at a mask that allows nothing}. Half of the tokens
// are taken out of those that the schema's own text and single characters are made of; from prefer_ends on what ends
// the text or closes something is preferred.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/token_mask.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace fathom::grammar {
namespace {

constexpr int kJsonDepth = 512;

class Walker {
 public:
  explicit Walker(const std::string& folder)
      : tokenizer_(text::Tokenizer::load(folder).value()), eos_(tokenizer_.eos_id()) {
    std::vector<VocabularyToken> tokens;
    for (int id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string_view bytes = tokenizer_.is_added(id) ? "" : tokenizer_.token_bytes(id);
      tokens.push_back({.bytes = bytes});
      const bool closes = !bytes.empty() && bytes.find_first_not_of("\"}]") == bytes.npos;
      if (closes) closing_.push_back(id);
      if (bytes.size() == 1) single_.push_back(id);
    }
    vocabulary_ = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{eos_});
  }

  json::Value walk_all(const json::Value& line) {
    json::Value result = {{"id", line["id"]}};
    const std::string schema = json::dump(line["schema"]);
    JsonStyle style{.unlisted = static_cast<Unlisted>(line.value("unlisted", 0))};
    if (line.contains("space")) style.space = line["space"].get<std::string>();
    const auto grammar = compile(json_schema(schema, style));
    if (!grammar) {
      result["refusal"] = grammar.error().message;
      return result;
    }
    likely_ = tokenizer_.encode(schema, {.parse_special = false});
    likely_.insert(likely_.end(), single_.begin(), single_.end());
    int num_unfinished = 0, num_stuck = 0;
    result["texts"] = json::Value::array();
    for (const json::Value& seed : line["seeds"]) {
      random_.seed(seed.get<uint64_t>());
      const auto constraint = (*grammar)->new_constraint(vocabulary_);
      std::optional<std::string> text = walk(*constraint, line["max_tokens"].get<int>(),
                                             line["prefer_ends"].get<int>(), num_stuck);
      num_unfinished += text ? 0 : 1;
      if (text) result["texts"].push_back(std::move(*text));
    }
    result["num_unfinished"] = num_unfinished;
    result["num_stuck"] = num_stuck;
    return result;
  }

 private:
  std::optional<std::string> walk(core::TokenConstraint& constraint, int max_tokens,
                                  int prefer_ends, int& num_stuck) {
    std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(vocabulary_->size())));
    std::string text;
    for (int step = 0; step < max_tokens; ++step) {
      constraint.fill_mask(words);
      const bool must_end = step >= prefer_ends;
      if (mask_allows(words.data(), eos_) && (must_end || random_() % 4 == 0)) return text;
      int32_t token = must_end ? one_of(closing_, words) : -1;
      if (token < 0 && random_() % 2 == 0) token = one_of(likely_, words);
      if (token < 0) token = any_of(words);
      if (token < 0) {
        ++num_stuck;
        return std::nullopt;
      }
      FATHOM_CHECK(constraint.accept(token),
                   "a token that the mask allows is refused after " << text);
      if (token == eos_) return text;
      text += tokenizer_.token_bytes(token);
    }
    return std::nullopt;
  }

  // -1: none of them is allowed.
  int32_t one_of(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& words) {
    std::vector<int32_t> allowed;
    for (const int32_t token : tokens) {
      if (mask_allows(words.data(), token)) allowed.push_back(token);
    }
    return allowed.empty() ? -1 : allowed[random_() % allowed.size()];
  }
  int32_t any_of(const std::vector<uint64_t>& words) {
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary_->size(); ++token) {
      if (mask_allows(words.data(), token)) allowed.push_back(token);
    }
    return allowed.empty() ? -1 : allowed[random_() % allowed.size()];
  }

  text::Tokenizer tokenizer_;
  int32_t eos_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<int32_t> closing_, single_, likely_;
  std::mt19937_64 random_;
};

}  // namespace
}  // namespace fathom::grammar

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: walk_schemas TOKENIZER_DIR < schemas.jsonl\n", stderr);
    return 2;
  }
  fathom::grammar::Walker walker(argv[1]);
  for (std::string text; std::getline(std::cin, text);) {
    const auto line = fathom::json::parse(text, {.max_depth = fathom::grammar::kJsonDepth});
    FATHOM_CHECK(line, line.error().message);
    std::cout << fathom::json::dump(walker.walk_all(*line)) << std::endl;
  }
  return 0;
}
