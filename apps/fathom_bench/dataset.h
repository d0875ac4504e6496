#pragma once
// Prompts for load tests: random words, or groups of questions behind a shared prefix. The same seed and
// tokenizer give the same prompts.
//
//   SeededDraws draws(seed);
//   const PromptWords words(tokenizer);
//   std::vector<BenchPrompt> prompts = random_prompts({.num_prompts = 100}, words, draws);
//
// PromptWords refers to the tokenizer, which must outlive it. Not synchronised.

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace fathom::apps {

// A stream of random numbers that is the same on every machine.
class SeededDraws {
 public:
  explicit SeededDraws(uint64_t seed) : seed_(seed) {}
  double uniform();                            // [0, 1)
  int64_t between(int64_t low, int64_t high);  // [low, high]; REQUIRES: low <= high
  double exponential(double mean);

 private:
  uint64_t seed_, position_ = 0;
};

struct BenchPrompt {
  std::vector<int32_t> ids;
  std::string text = {};  // the same prompt for APIs that take text
  int text_tokens = 0;    // of the text, encoded again
  int output_len = 0;
};

// Draws from the vocabulary's words (a space, then ASCII letters), so that a prompt's text splits into the
// same tokens again; from all ordinary tokens where the vocabulary has too few words.
class PromptWords {
 public:
  explicit PromptWords(const text::Tokenizer& tokenizer);
  std::vector<int32_t> draw(int count, SeededDraws& draws) const;
  BenchPrompt prompt(std::vector<int32_t> ids, int output_len) const;

 private:
  const text::Tokenizer* tokenizer_;
  std::vector<int32_t> ids_;
};

// Lengths are uniform between range_ratio times the given one (at least 1) and the given one.
struct RandomDataset {
  int num_prompts = 1000, input_len = 1024, output_len = 1024;
  double range_ratio = 0;
};
std::vector<BenchPrompt> random_prompts(const RandomDataset& dataset, const PromptWords& words,
                                        SeededDraws& draws);

struct SharedPrefixDataset {
  int num_groups = 64, prompts_per_group = 16;
  int system_prompt_len = 2048, question_len = 128, output_len = 256;
};
// In random order.
std::vector<BenchPrompt> shared_prefix_prompts(const SharedPrefixDataset& dataset,
                                               const PromptWords& words, SeededDraws& draws);

}  // namespace fathom::apps
