#include "core/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

namespace fathom::core {
namespace {

// "temperature is 101, must be in [0, 100]"
template <class T>
Error out_of_range(std::string_view field, T value, std::string_view rule) {
  std::ostringstream message;
  message << field << " is " << value << ", must be " << rule;
  return invalid_argument(message.str());
}

struct FloatRange {
  std::string_view field;
  float value, min, max;
  bool min_included;
  std::string_view rule;
};

// Written so that NaN fails every range.
bool contains(const FloatRange& range) {
  const bool above = range.min_included ? range.value >= range.min : range.value > range.min;
  return above && range.value <= range.max;
}

Status validate_counts(const SamplingParams& params) {
  if (params.max_new_tokens < 0)
    return out_of_range("max_new_tokens", params.max_new_tokens, ">= 0");
  if (params.min_new_tokens < 0 || params.min_new_tokens > params.max_new_tokens)
    return out_of_range("min_new_tokens", params.min_new_tokens,
                        "in [0, max_new_tokens = " + std::to_string(params.max_new_tokens) + "]");
  if (params.top_k < -1) return out_of_range("top_k", params.top_k, "-1 (all) or >= 0");
  if (params.num_top_logprobs < 0 || params.num_top_logprobs > kMaxTopLogprobs)
    return out_of_range("num_top_logprobs", params.num_top_logprobs,
                        "in [0, " + std::to_string(kMaxTopLogprobs) + "]");
  return {};
}

Status validate_floats(const SamplingParams& params) {
  const FloatRange ranges[] = {
      {"temperature", params.temperature, 0, 100, true, "in [0, 100]"},
      {"top_p", params.top_p, 0, 1, false, "in (0, 1]"},
      {"min_p", params.min_p, 0, 1, true, "in [0, 1]"},
      {"repetition_penalty", params.repetition_penalty, 0, 2, false, "in (0, 2]"},
      {"frequency_penalty", params.frequency_penalty, -2, 2, true, "in [-2, 2]"},
      {"presence_penalty", params.presence_penalty, -2, 2, true, "in [-2, 2]"},
  };
  for (const FloatRange& range : ranges)
    if (!contains(range)) return out_of_range(range.field, range.value, range.rule);
  return {};
}

Status validate_token(std::string_view field, int32_t token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return {};
  return out_of_range(std::string(field) + " token id", token,
                      "in [0, " + std::to_string(vocab_size) + "), the vocabulary");
}

Status validate_count(std::string_view field, size_t count, int most) {
  if (count <= static_cast<size_t>(most)) return {};
  return invalid_argument(std::string(field) + " has " + std::to_string(count) +
                          " entries, must have at most " + std::to_string(most));
}

Status validate_token_lists(const SamplingParams& params, int vocab_size) {
  if (Status status =
          validate_count("stop_token_ids", params.stop_token_ids.size(), kMaxStopTokenIds);
      !status)
    return status;
  if (Status status = validate_count("logit_bias", params.logit_bias.size(), kMaxLogitBias);
      !status)
    return status;
  for (int32_t token : params.stop_token_ids)
    if (Status status = validate_token("stop_token_ids", token, vocab_size); !status) return status;

  std::vector<int32_t> biased;
  for (const auto& [token, bias] : params.logit_bias) {
    if (Status status = validate_token("logit_bias", token, vocab_size); !status) return status;
    if (!(bias >= -100 && bias <= 100))
      return out_of_range("logit_bias of token " + std::to_string(token), bias, "in [-100, 100]");
    biased.push_back(token);
  }
  std::sort(biased.begin(), biased.end());
  const auto twice = std::adjacent_find(biased.begin(), biased.end());
  if (twice != biased.end())
    return invalid_argument("logit_bias names token " + std::to_string(*twice) +
                            " twice, must name a token once");
  return {};
}

}  // namespace

Status validate(const SamplingParams& params, int vocab_size) {
  if (Status status = validate_counts(params); !status) return status;
  if (Status status = validate_floats(params); !status) return status;
  return validate_token_lists(params, vocab_size);
}

}  // namespace fathom::core
