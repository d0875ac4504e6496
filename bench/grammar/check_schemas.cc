// Which schemas compile, which instances they take, and how long it takes. tools/constrained/compare.py drives it.
//
//   build/release/bench/check_schemas TOKENIZER_DIR [no-masks] < schemas.jsonl > results.jsonl
//
// A line in: {"id": ..., "schema": SCHEMA, "texts": ["instance as text", ...]}. A line out: {"id", "compile_ms", and
// "refusal": sentence or "accepted": [bool, ...], "reached": [bytes of each text that were taken], "masks_us": [time of
// each mask along the texts], "masks_hash": of all their bits, for a comparison with another build}. An instance is
// accepted where every token of its text and the end are accepted; masks are made on the way, and may not allow what
// is not accepted. CPU time of the thread.

#include <cstdio>
#include <ctime>
#include <iostream>
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

double thread_cpu_us() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

struct TokenizerVocabulary {
  explicit TokenizerVocabulary(const std::string& folder)
      : tokenizer(text::Tokenizer::load(folder).value()), eos(tokenizer.eos_id()) {
    std::vector<std::string> texts;
    for (int id = 0; id < tokenizer.vocab_size(); ++id) {
      texts.emplace_back(tokenizer.is_added(id) ? "" : tokenizer.token_bytes(id));
    }
    std::vector<VocabularyToken> tokens;
    for (const std::string& text : texts) tokens.push_back({.bytes = text});
    vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{eos});
  }
  text::Tokenizer tokenizer;
  int32_t eos;
  std::shared_ptr<const Vocabulary> vocabulary;
};

struct Masks {
  json::Value times_us = json::Value::array();
  uint64_t hash = 0xCBF29CE484222325u;
};

void add_to_hash(const std::vector<uint64_t>& words, uint64_t& hash) {
  for (const uint64_t word : words) hash = (hash ^ word) * 0x100000001B3u;
}

// How much of the text is taken, its end as one byte more. masks: null where none are to be made.
size_t bytes_taken(const CompiledGrammar& grammar, const TokenizerVocabulary& vocabulary,
                   const std::string& text, Masks* masks) {
  std::vector<int32_t> tokens = vocabulary.tokenizer.encode(text, {.parse_special = false});
  tokens.push_back(vocabulary.eos);
  const auto constraint = grammar.new_constraint(vocabulary.vocabulary);
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(vocabulary.vocabulary->size())));
  size_t num_bytes = 0;
  for (const int32_t token : tokens) {
    bool is_allowed = false;
    if (masks != nullptr) {
      const double start = thread_cpu_us();
      constraint->fill_mask(words);
      masks->times_us.push_back(static_cast<int64_t>((thread_cpu_us() - start) * 10) / 10.0);
      add_to_hash(words, masks->hash);
      is_allowed = mask_allows(words.data(), token);
    }
    const bool is_accepted = constraint->accept(token);
    // A mask whose work was cut may lack a token that the grammar takes, and never the other way.
    FATHOM_CHECK(is_accepted || !is_allowed,
                 "a mask allows a token that is not accepted: " << text);
    if (!is_accepted) return num_bytes;
    num_bytes += token == vocabulary.eos ? 1 : vocabulary.vocabulary->text_bytes(token).size();
  }
  return num_bytes;
}

void check(const json::Value& line, const TokenizerVocabulary& vocabulary, bool makes_masks) {
  json::Value result = {{"id", line["id"]}};
  const double start = thread_cpu_us();
  const auto grammar = compile(json_schema(json::dump(line["schema"])));
  result["compile_ms"] = (thread_cpu_us() - start) / 1e3;
  if (grammar) {
    result["states"] = (*grammar)->num_states();
    result["accepted"] = json::Value::array();
    result["reached"] = json::Value::array();
    Masks masks;
    for (const json::Value& text : line["texts"]) {
      const auto instance = text.get<std::string>();
      const size_t num_bytes =
          bytes_taken(**grammar, vocabulary, instance, makes_masks ? &masks : nullptr);
      result["accepted"].push_back(num_bytes > instance.size());
      result["reached"].push_back(num_bytes);
    }
    result["masks_us"] = std::move(masks.times_us);
    result["masks_hash"] = std::to_string(masks.hash);
  } else {
    result["refusal"] = grammar.error().message;
  }
  std::cout << json::dump(result) << std::endl;
}

}  // namespace
}  // namespace fathom::grammar

int main(int argc, char** argv) {
  const bool makes_masks = argc != 3 || std::string(argv[2]) != "no-masks";
  if (argc < 2 || argc > 3 || (argc == 3 && makes_masks)) {
    std::fputs("usage: check_schemas TOKENIZER_DIR [no-masks] < schemas.jsonl\n", stderr);
    return 2;
  }
  const fathom::grammar::TokenizerVocabulary vocabulary(argv[1]);
  for (std::string text; std::getline(std::cin, text);) {
    const auto line = fathom::json::parse(text, {.max_depth = fathom::grammar::kJsonDepth});
    FATHOM_CHECK(line, line.error().message);
    fathom::grammar::check(*line, vocabulary, makes_masks);
  }
  return 0;
}
