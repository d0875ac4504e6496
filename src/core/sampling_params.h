#pragma once
// How one request's tokens are chosen. Field names and defaults follow OpenAI's and SGLang's.
// Plain data; validate() is called once at admission, before anything reads the values.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fathom::core {

// Of one token, that a client may ask for.
inline constexpr int kMaxTopLogprobs = 20;
// Entries of a request.
inline constexpr int kMaxLogitBias = 1024, kMaxStopTokenIds = 1024;
// The end tokens of a model.
inline constexpr int kMaxEosTokenIds = 128;
// All of them together, beside a running request.
inline constexpr int kMaxBiasesOfSlot = kMaxLogitBias + kMaxStopTokenIds + kMaxEosTokenIds;

struct SamplingParams {
  int max_new_tokens = 128;         // >= 0
  int min_new_tokens = 0;           // stop tokens are banned before this many
  float temperature = 1.0f;         // [0, 100]; 0 = greedy
  int top_k = -1;                   // -1 or 0 = all, 1 = greedy
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]; keeps tokens with p >= min_p * max p
  float repetition_penalty = 1.0f;  // (0, 2]; over prompt and output tokens: logit > 0 ? /= : *=
  float frequency_penalty = 0.0f;   // [-2, 2]; times the count in the output
  float presence_penalty = 0.0f;    // [-2, 2]; once for a token in the output
  std::vector<std::pair<int32_t, float>> logit_bias{};  // token id, [-100, 100]
  std::optional<uint64_t> seed{};                       // none = drawn at admission and reported
  std::vector<int32_t> stop_token_ids{};                // besides the model's eos ids
  bool ignore_eos = false;                              // stop_token_ids still stop
  bool return_logprobs = false;                         // of the chosen tokens
  int num_top_logprobs = 0;                             // [0, kMaxTopLogprobs]
  bool return_prompt_logprobs = false;
};

// Checks every range above and that token ids are below vocab_size. The message names field, value,
// rule.
Status validate(const SamplingParams& params, int vocab_size);

}  // namespace fathom::core
