#pragma once
// What the fuzz targets of grammars share: a small vocabulary, a random output, and the check that an
// output is taken again.
//
//   Walk walk = fuzz_walk(regex(pattern), seed);
//   if (walk.is_complete) check_taken(regex(pattern), walk.text);

#include <string>
#include <vector>

#include "base/thread_cpu.h"
#include "tests/grammar/random_walk.h"

namespace fathom::grammar::tests {

// Less time than a server gives, so that slow inputs do not fill the corpus.
inline Limits fuzz_limits() { return {.max_states = 20'000, .max_cpu_seconds = 0.2}; }

inline const TestVocabulary& fuzz_vocabulary() {
  static const TestVocabulary vocabulary = [] {
    std::vector<std::string> texts = byte_tokens();
    for (const char* text :
         {"{\"", "\":", "\",\"", "\"}", "}]", "]}", "true", "null", "12", "ab", "\xC3\xA9"}) {
      texts.emplace_back(text);
    }
    return make_vocabulary(std::move(texts));
  }();
  return vocabulary;
}

// Generous, for a sanitizer that frees what was made.
constexpr double kMostCpuSeconds = 1.0;

// Whatever the source, compiling ends with its time; and what is refused is refused in words of some length.
inline Result<std::shared_ptr<const CompiledGrammar>> fuzz_compile(const Expression& expression) {
  const double start_seconds = thread_cpu_seconds();
  auto grammar = compile(expression, fuzz_limits());
  const double seconds = thread_cpu_seconds() - start_seconds;
  FATHOM_CHECK(seconds < kMostCpuSeconds, "compiling took " << seconds << " s");
  if (grammar) return grammar;
  FATHOM_CHECK(!grammar.error().message.empty() && grammar.error().message.size() < 2000,
               grammar.error().message);
  return grammar;
}

inline Walk fuzz_walk(const Expression& expression, uint64_t seed) {
  const auto grammar = fuzz_compile(expression);
  if (!grammar) return {};
  const auto constraint = (*grammar)->new_constraint(fuzz_vocabulary().vocabulary);
  return random_walk(*constraint, fuzz_vocabulary(), seed, 60, 20);
}

inline void check_taken(const Expression& expression, const std::string& text) {
  const auto grammar = fuzz_compile(expression);
  if (!grammar) return;  // this time the clock was slower
  const auto constraint = (*grammar)->new_constraint(fuzz_vocabulary().vocabulary);
  for (const char c : text) {
    FATHOM_CHECK(constraint->accept(static_cast<uint8_t>(c)), "refused within " << text);
  }
  FATHOM_CHECK(constraint->accept(fuzz_vocabulary().eos), "refused the end of " << text);
}

}  // namespace fathom::grammar::tests
