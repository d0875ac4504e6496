// Time of one mask, along random outputs. FATHOM_BENCH_MODEL=DIR takes a model's tokenizer; without it the
// demo's. A third vocabulary of 129,280 tokens (the size of DeepSeek-V3's) is made of words and JSON pieces.
//
//   build/release/bench/bench_grammar
//
// One line per grammar and vocabulary: compile time, then p50, p99 and the largest time of fill_mask in
// microseconds, first masks (cold caches) included. CPU time of the thread: other load does not show.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/token_mask.h"
#include "grammar/grammar.h"
#include "tests/source_tree.h"
#include "text/tokenizer.h"

namespace fathom::grammar {
namespace {

constexpr int kMasks = 4000;

struct NamedVocabulary {
  std::string name;
  std::shared_ptr<const Vocabulary> vocabulary;
  int32_t eos = 0;
};

NamedVocabulary from_texts(const std::string& name, const std::vector<std::string>& texts,
                           int32_t eos) {
  std::vector<VocabularyToken> tokens;
  for (const std::string& text : texts) tokens.push_back({.bytes = text});
  return {name, std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{eos}), eos};
}

NamedVocabulary model_vocabulary() {
  const char* const path = std::getenv("FATHOM_BENCH_MODEL");
  const auto tokenizer =
      text::Tokenizer::load(path != nullptr ? path : source_path("models/demo")).value();
  std::vector<std::string> texts;
  for (int id = 0; id < tokenizer.vocab_size(); ++id) {
    texts.emplace_back(tokenizer.is_special(id) ? "" : tokenizer.token_bytes(id));
  }
  return from_texts("model, " + std::to_string(texts.size()), texts, tokenizer.eos_id());
}

// Words of the lengths of a large vocabulary, with and without a space in front, Han characters, numbers,
// about 2 % pieces with quotes and brackets and 3 % pieces of 13 to 64 bytes.
NamedVocabulary large_vocabulary() {
  constexpr size_t kSize = 129'280;
  std::mt19937_64 random(1);
  std::set<std::string> made;
  std::vector<std::string> texts;
  const auto add = [&](std::string text) {
    if (made.insert(text).second) texts.push_back(std::move(text));
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  const auto pick = [&](std::string_view letters) { return letters[random() % letters.size()]; };
  while (texts.size() + 1 < kSize) {
    const auto kind = random() % 100;
    std::string text = random() % 2 == 0 ? " " : "";
    const auto length = 2 + random() % 8;
    if (kind < 2) {
      for (auto i = length / 2; i > 0; --i) text += pick("\"\"{}[]:,.;()\n \\");
    } else if (kind < 30) {
      text.clear();
      for (auto i = 1 + random() % 3; i > 0; --i) {
        text += {static_cast<char>(0xE4 + random() % 5), static_cast<char>(0x80 + random() % 64),
                 static_cast<char>(0x80 + random() % 64)};
      }
    } else if (kind < 33) {
      const size_t long_length = 13 + random() % 8;
      if (random() % 8 == 0) {
        text.assign(long_length * (1 + random() % 3), pick(" -=*_\n"));
      } else {
        while (text.size() < long_length) text += pick("eeeettaaooiinnsshhrrddllucmwfgypbvk");
      }
    } else if (kind < 35) {
      for (auto i = 1 + random() % 3; i > 0; --i) text += pick("0123456789");
    } else {
      for (auto i = length; i > 0; --i) text += pick("eeeettaaooiinnsshhrrddllucmwfgypbvk");
    }
    add(text);
  }
  texts.emplace_back("<eos>");
  return from_texts("synthetic, 129280", texts, static_cast<int32_t>(kSize) - 1);
}

double thread_cpu_us() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

int32_t draw(const std::vector<uint64_t>& words, const Vocabulary& vocabulary, bool is_long,
             std::mt19937_64& random) {
  std::vector<int32_t> allowed, closing;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!mask_allows(words.data(), id)) continue;
    allowed.push_back(id);
    if (vocabulary.text_bytes(id).find_first_not_of("\"}]") == std::string_view::npos) {
      closing.push_back(id);
    }
  }
  // Strings of some tokens, not of thousands.
  const auto& from = !closing.empty() && (is_long || random() % 8 == 0) ? closing : allowed;
  return from[random() % from.size()];
}

void measure(const NamedVocabulary& vocabulary, const std::string& name,
             const Expression& expression) {
  const double compile_start = thread_cpu_us();
  const auto grammar = compile(expression).value();
  const double compile_ms = (thread_cpu_us() - compile_start) / 1e3;
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(vocabulary.vocabulary->size())));
  std::vector<double> times_us;
  std::mt19937_64 random(7);
  while (times_us.size() < kMasks) {
    const auto constraint = grammar->new_constraint(vocabulary.vocabulary);
    for (int step = 0; step < 300 && times_us.size() < kMasks; ++step) {
      const double start = thread_cpu_us();
      constraint->fill_mask(words);
      times_us.push_back(thread_cpu_us() - start);
      const int32_t token = draw(words, *vocabulary.vocabulary, step > 200, random);
      FATHOM_CHECK(constraint->accept(token), "token " << token);
      if (token == vocabulary.eos) break;
    }
  }
  std::sort(times_us.begin(), times_us.end());
  std::printf("| %s | %s | %d | %.1f | %.0f | %.0f | %.0f |\n", vocabulary.name.c_str(),
              name.c_str(), grammar->num_states(), compile_ms, times_us[times_us.size() / 2],
              times_us[times_us.size() * 99 / 100], times_us.back());
}

void run() {
  const std::string person =
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["red","green","blue"]}},"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street"]}},"required":["name","age","tags","address"]})";
  std::printf(
      "| vocabulary | grammar | states | compile, ms | p50, us | p99, us | largest, us |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const NamedVocabulary& vocabulary : {model_vocabulary(), large_vocabulary()}) {
    measure(vocabulary, "json_object", json_object());
    measure(vocabulary, "schema of a person", json_schema(person));
    measure(vocabulary, "bounded string, 200 characters",
            json_schema(R"({"type":"string","maxLength":200})"));
    measure(vocabulary, "string, 100 to 2000 characters",
            json_schema(R"({"type":"string","minLength":100,"maxLength":2000})"));
    measure(vocabulary, "regex [a-z ]{1,80}", regex("[a-z ]{1,80}"));
    measure(vocabulary, "regex (.|\\n){0,300}", regex("(.|\\n){0,300}"));
    measure(vocabulary, "free text until a marker", text_until({"</done>", -1}));
  }
}

}  // namespace
}  // namespace fathom::grammar

int main() { fathom::grammar::run(); }
