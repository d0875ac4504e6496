#include "apps/fathom_bench/dataset.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr size_t kMinWords = 32;

bool is_word(std::string_view bytes) {
  if (bytes.size() < 2 || bytes[0] != ' ') return false;
  return std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

int draw_length(int length, double range_ratio, SeededDraws& draws) {
  const int shortest = std::max(1, static_cast<int>(length * range_ratio));
  return static_cast<int>(draws.between(std::min(shortest, length), length));
}

}  // namespace

double SeededDraws::uniform() {
  const auto bits = philox(seed_, 0, position_++);
  const uint64_t wide = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

int64_t SeededDraws::between(int64_t low, int64_t high) {
  FATHOM_CHECK(low <= high, "between " << low << " and " << high);
  return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
}

double SeededDraws::exponential(double mean) { return -mean * std::log1p(-uniform()); }

PromptWords::PromptWords(const text::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  std::vector<int32_t> ordinary;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (bytes.empty() || tokenizer.is_special(id)) continue;
    ordinary.push_back(id);
    if (is_word(bytes)) ids_.push_back(id);
  }
  if (ids_.size() < kMinWords) ids_ = std::move(ordinary);
  if (ids_.empty()) throw StartupError("the tokenizer has no ordinary tokens to make prompts of");
}

std::vector<int32_t> PromptWords::draw(int count, SeededDraws& draws) const {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const int64_t index = draws.between(0, static_cast<int64_t>(ids_.size()) - 1);
    ids.push_back(ids_[static_cast<size_t>(index)]);
  }
  return ids;
}

BenchPrompt PromptWords::prompt(std::vector<int32_t> ids, int output_len) const {
  BenchPrompt prompt{.ids = std::move(ids), .output_len = output_len};
  prompt.text = tokenizer_->decode(prompt.ids, /*skip_special_tokens=*/true);
  prompt.text_tokens =
      static_cast<int>(tokenizer_->encode(prompt.text, {.parse_special = false}).size());
  return prompt;
}

std::vector<BenchPrompt> random_prompts(const RandomDataset& dataset, const PromptWords& words,
                                        SeededDraws& draws) {
  std::vector<BenchPrompt> prompts;
  for (int i = 0; i < dataset.num_prompts; ++i) {
    const int input_len = draw_length(dataset.input_len, dataset.range_ratio, draws);
    const int output_len = draw_length(dataset.output_len, dataset.range_ratio, draws);
    prompts.push_back(words.prompt(words.draw(input_len, draws), output_len));
  }
  return prompts;
}

std::vector<BenchPrompt> shared_prefix_prompts(const SharedPrefixDataset& dataset,
                                               const PromptWords& words, SeededDraws& draws) {
  std::vector<BenchPrompt> prompts;
  for (int group = 0; group < dataset.num_groups; ++group) {
    const std::vector<int32_t> prefix = words.draw(dataset.system_prompt_len, draws);
    for (int i = 0; i < dataset.prompts_per_group; ++i) {
      std::vector<int32_t> ids = prefix;
      const std::vector<int32_t> question = words.draw(dataset.question_len, draws);
      ids.insert(ids.end(), question.begin(), question.end());
      prompts.push_back(words.prompt(std::move(ids), dataset.output_len));
    }
  }
  for (size_t i = prompts.size(); i > 1; --i) {
    const int64_t other = draws.between(0, static_cast<int64_t>(i) - 1);
    std::swap(prompts[i - 1], prompts[static_cast<size_t>(other)]);
  }
  return prompts;
}

}  // namespace fathom::apps
