// Time of one mask. FATHOM_BENCH_MODEL=DIR takes a model's tokenizer (tools/tokenizer/fetch_deepseek.sh); without
// it the demo's.
//
//   build/release/bench/bench_grammar [random [PART]]   along random outputs; the vocabularies are the model's and one
//                                                      of 129,280 made words and JSON pieces
//   build/release/bench/bench_grammar prose [PART]   along English prose, with the model's vocabulary; grammars whose
//                                                  name holds PART
//
// One line per grammar and vocabulary: compile time, then p50, p99 and the largest time of fill_mask in
// microseconds, first masks (cold caches) included. Along prose the smallest of kRounds times of each step, every
// round with a grammar of its own, and then those of a second text with the same grammar; what three drafts cost
// beside their masks, as a copy that accepts them; last a checksum of the cold masks, for a comparison with another
// build. CPU time of the thread: other load does not show.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <sstream>
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
constexpr int kRounds = 5;
constexpr size_t kDrafts = 3;

constexpr const char* kArticle =
    R"({"type":"object","properties":{"title":{"type":"string","maxLength":200},"body":{"type":"string"},"tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":8},"rating":{"type":"integer","minimum":1,"maximum":5},"author":{"type":"object","properties":{"name":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["name"]}},"required":["title","body","tags","rating"]})";

// Patterns whose ways through a text are many.
constexpr std::array<const char*, 8> kAmbiguous = {"(a|a)*b",
                                                   "(a|b)*a(a|b){12}",
                                                   "(.*a){20}b",
                                                   "(x{0,300}){0,300}",
                                                   ".*.*.*.*.*.*=.*",
                                                   "(a?){500}a{500}",
                                                   "([ab]*a[ab]{500}|[ab]*b[ab]{500})*",
                                                   "([a-z]*[aeiou][a-z]{40}|.*[b-d].{30})*"};

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

text::Tokenizer model_tokenizer() {
  const char* const path = std::getenv("FATHOM_BENCH_MODEL");
  return text::Tokenizer::load(path != nullptr ? path : source_path("models/demo")).value();
}

NamedVocabulary model_vocabulary(const text::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int id = 0; id < tokenizer.vocab_size(); ++id) {
    texts.emplace_back(tokenizer.is_added(id) ? "" : tokenizer.token_bytes(id));
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
  const auto compiled = compile(expression);
  if (!compiled) {
    std::printf("| %s | %s | refused: %s |\n", vocabulary.name.c_str(), name.c_str(),
                compiled.error().message.c_str());
    return;
  }
  const auto& grammar = *compiled;
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

// fill_mask times of each step along the text, in microseconds. accept() is part of no mask: its largest time is
// kept on its own.
struct TextTimes {
  std::vector<double> masks_us;
  std::vector<double> forks_us;  // of each step with kDrafts tokens behind it
  double accept_us = 0;
  uint64_t hash = 0xCBF29CE484222325u;
};

// What the drafts of a step cost beside their masks: a copy of the constraint goes on through them and is dropped.
double fork_us(const core::TokenConstraint& constraint, std::span<const int32_t> drafts) {
  const double start = thread_cpu_us();
  const auto fork = constraint.clone();
  for (const int32_t token : drafts) FATHOM_CHECK(fork->accept(token), "token " << token);
  return thread_cpu_us() - start;
}

TextTimes follow(const CompiledGrammar& grammar, const NamedVocabulary& vocabulary,
                 const std::vector<int32_t>& tokens, bool with_forks = false) {
  TextTimes times;
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(vocabulary.vocabulary->size())));
  const auto constraint = grammar.new_constraint(vocabulary.vocabulary);
  const std::span<const int32_t> all(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int32_t token = tokens[i];
    if (with_forks && i + kDrafts < tokens.size())
      times.forks_us.push_back(fork_us(*constraint, all.subspan(i, kDrafts)));
    double start = thread_cpu_us();
    constraint->fill_mask(words);
    times.masks_us.push_back(thread_cpu_us() - start);
    for (const uint64_t word : words) times.hash = (times.hash ^ word) * 0x100000001B3u;
    FATHOM_CHECK(mask_allows(words.data(), token),
                 "the mask of step " << times.masks_us.size() << " lacks the text's token "
                                     << vocabulary.vocabulary->text_bytes(token));
    start = thread_cpu_us();
    FATHOM_CHECK(constraint->accept(token), "token " << token);
    times.accept_us = std::max(times.accept_us, thread_cpu_us() - start);
  }
  return times;
}

std::string percentiles(std::vector<double> times_us) {
  std::sort(times_us.begin(), times_us.end());
  std::array<char, 64> line{};
  std::snprintf(line.data(), line.size(), "%.1f | %.1f | %.1f", times_us[times_us.size() / 2],
                times_us[times_us.size() * 99 / 100], times_us.back());
  return line.data();
}

void keep_smaller(TextTimes& best, const TextTimes& times) {
  if (best.masks_us.empty()) best = times;
  for (size_t i = 0; i < best.masks_us.size(); ++i) {
    best.masks_us[i] = std::min(best.masks_us[i], times.masks_us[i]);
  }
  for (size_t i = 0; i < best.forks_us.size(); ++i) {
    best.forks_us[i] = std::min(best.forks_us[i], times.forks_us[i]);
  }
  best.accept_us = std::min(best.accept_us, times.accept_us);
}

void measure_text(const NamedVocabulary& vocabulary, const text::Tokenizer& tokenizer,
                  const std::string& name, const Expression& expression, const std::string& text) {
  std::vector<int32_t> tokens = tokenizer.encode(text, {.parse_special = false});
  tokens.push_back(vocabulary.eos);
  TextTimes cold, warm, forks;
  double compile_ms = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double start = thread_cpu_us();
    const auto grammar = compile(expression);
    if (!grammar) {
      std::printf("| %s | refused: %s |\n", name.c_str(), grammar.error().message.c_str());
      return;
    }
    compile_ms = std::min(compile_ms, (thread_cpu_us() - start) / 1e3);
    keep_smaller(cold, follow(**grammar, vocabulary, tokens));
    keep_smaller(warm, follow(**grammar, vocabulary, tokens));
    // With a grammar of its own: the drafts come to a place before the sequence does, as in an engine.
    keep_smaller(forks, follow(**compile(expression), vocabulary, tokens, true));
  }
  std::printf("| %s | %zu | %.1f | %s | %s | %.0f | %s | %016llx |\n", name.c_str(), tokens.size(),
              compile_ms, percentiles(cold.masks_us).c_str(), percentiles(warm.masks_us).c_str(),
              cold.accept_us, percentiles(forks.forks_us).c_str(),
              static_cast<unsigned long long>(cold.hash));
  std::fflush(stdout);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  FATHOM_CHECK(file, "cannot read " << path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Words of the license, one space apart.
std::string prose(size_t first, size_t num_bytes) {
  static const std::string text = [] {
    std::istringstream words(read_text(source_path("LICENSE")));
    std::string all;
    for (std::string word; words >> word;) all += word + ' ';
    std::erase(all, '"');
    return all;
  }();
  FATHOM_CHECK(first + num_bytes <= text.size(), "the text has " << text.size() << " bytes");
  return text.substr(first, num_bytes);
}

std::string bounded_strings(int count) {
  std::string schema = R"({"type":"array","items":{"anyOf":[)";
  for (int i = 1; i <= count; ++i) {
    schema +=
        (i > 1 ? "," : "") + (R"({"type":"string","maxLength":)" + std::to_string(i * 10)) + "}";
  }
  return schema + "]}}";
}

void run_prose(const text::Tokenizer& tokenizer, const NamedVocabulary& vocabulary,
               const std::string& part) {
  std::printf("Vocabulary: %s\n\n", vocabulary.name.c_str());
  std::printf(
      "| grammar | tokens | compile, ms | cold p50, us | p99 | largest | warm p50, us | p99 | "
      "largest "
      "| accept, largest | fork and 3 accepts p50 | p99 | largest | checksum |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  const auto measure_one = [&](const std::string& name, const Expression& expression,
                               const std::string& text) {
    if (name.find(part) == std::string::npos) return;
    measure_text(vocabulary, tokenizer, name, expression, text);
  };
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  const std::string counted = "a.{50}b|b.{60}c|c.{70}d";
  const std::string list = "[" + quoted(prose(0, 390)) + ", " + quoted(prose(400, 380)) + ", " +
                           quoted(prose(800, 100)) + "]";
  measure_one("string, maxLength 2000", json_schema(R"({"type":"string","maxLength":2000})"),
              quoted(prose(0, 1999)));
  measure_one("string, maxLength 200", json_schema(R"({"type":"string","maxLength":200})"),
              quoted(prose(0, 199)));
  measure_one("(" + counted + ")", regex("(" + counted + ")"), "c" + prose(0, 70) + "d");
  measure_one(".*(" + counted + ").*", regex(".*(" + counted + ").*"),
              prose(0, 1000) + "c" + prose(0, 70) + "d" + prose(70, 500));
  measure_one("pattern (" + counted + ")",
              json_schema(R"s({"type":"string","pattern":"()s" + counted + R"s()"})s"),
              quoted(prose(0, 1000) + "c" + prose(0, 70) + "d" + prose(70, 500)));
  measure_one("array of anyOf 40 bounded strings", json_schema(bounded_strings(40)), list);
  measure_one("json_object", json_object(),
              R"({"title": ")" + prose(0, 200) + R"(", "lines": [)" + quoted(prose(200, 300)) +
                  ", 12, -3.5, true, null, {\"a\": " + quoted(prose(0, 50)) + "}]}");
  measure_one(
      "schema of an article", json_schema(kArticle),
      R"({"title": ")" + prose(0, 120) + R"(", "body": ")" + prose(120, 900) +
          R"(", "tags": ["law", "license"], "rating": 4, "author": {"name": "A. Writer", "zip": "12345"}})");
  measure_one("regex [a-zA-Z0-9 .,;:()'/%-]{1,1500}", regex("[a-zA-Z0-9 .,;:()'/%-]{1,1500}"),
              prose(0, 1400));
  measure_one("regex (.|\\n){0,3000}", regex("(.|\\n){0,3000}"), prose(0, 1900));
  measure_one("ebnf of sentences",
              ebnf("root ::= word (\" \" word)*\nword ::= [A-Za-z0-9'/()%.,;:-]+"),
              prose(0, 1200).substr(0, prose(0, 1200).rfind(' ')));
  measure_one("free text until a marker", text_until({"</done>", -1}), prose(0, 1900) + "</done>");
}

void run_random(const text::Tokenizer& tokenizer, const std::string& part) {
  const std::string person =
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","items":{"enum":["red","green","blue"]}},"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street"]}},"required":["name","age","tags","address"]})";
  std::printf(
      "| vocabulary | grammar | states | compile, ms | p50, us | p99, us | largest, us |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const NamedVocabulary& vocabulary : {model_vocabulary(tokenizer), large_vocabulary()}) {
    const auto measure_one = [&](const std::string& name, const Expression& expression) {
      if (name.find(part) != std::string::npos) measure(vocabulary, name, expression);
    };
    measure_one("json_object", json_object());
    measure_one("schema of a person", json_schema(person));
    measure_one("bounded string, 200 characters",
                json_schema(R"({"type":"string","maxLength":200})"));
    measure_one("string, 100 to 2000 characters",
                json_schema(R"({"type":"string","minLength":100,"maxLength":2000})"));
    measure_one("regex [a-z ]{1,80}", regex("[a-z ]{1,80}"));
    measure_one("regex (.|\\n){0,300}", regex("(.|\\n){0,300}"));
    measure_one("free text until a marker", text_until({"</done>", -1}));
    for (const char* pattern : kAmbiguous) measure_one(pattern, regex(pattern));
    measure_one("ebnf root ::= root root | a | nothing", ebnf("root ::= root root | \"a\" | \"\""));
    measure_one("ebnf root ::= (root | .) (root | .)? (root | .)* ...",
                ebnf("root ::= (root | .) (root | .)? (root | .)* \"x\"? "));
    measure_one("ebnf of a ::= . b* | b . and b ::= a a | . a?",
                ebnf("a ::= . b* | b . \nb ::= a a | . a? \nroot ::= a* b* \"q\"?"));
    measure_one("ebnf root ::= .+ root* ... \"LLL\"", ebnf("root ::= .+ root* ... \"LLL\""));
  }
}

}  // namespace
}  // namespace fathom::grammar

int main(int argc, char** argv) {
  const auto tokenizer = fathom::grammar::model_tokenizer();
  if (argc > 1 && std::string(argv[1]) == "prose") {
    fathom::grammar::run_prose(tokenizer, fathom::grammar::model_vocabulary(tokenizer),
                               argc > 2 ? argv[2] : "");
  } else {
    fathom::grammar::run_random(tokenizer, argc > 2 ? argv[2] : "");
  }
}
