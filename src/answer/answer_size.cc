#include "answer/answer_size.h"

#include <algorithm>
#include <string>

namespace fathom::answer {
namespace {

int64_t num_prompt_values(const api::GenerationRequest& request, const api::GenerationItem& item) {
  const auto num_tokens = static_cast<int64_t>(item.prompt.size());
  int64_t per_choice = request.echo || request.return_token_ids ? num_tokens : 0;
  if (!item.sampling.return_prompt_logprobs) return item.n * per_choice;
  const int64_t num_shown = num_tokens - std::max(0, item.logprob_start_len);
  const int64_t logprobs = num_shown * (1 + item.sampling.num_top_logprobs);
  // Chats show them once for all choices.
  if (api::is_chat(request.endpoint)) return item.n * per_choice + logprobs;
  return item.n * (per_choice + logprobs);
}

std::optional<api::ApiError> problem_of_copies(const api::GenerationRequest& request,
                                               int64_t max_held_bytes) {
  const int64_t most = std::min(kMaxCopiedTokens, max_held_bytes / kBytesPerHeldToken);
  int64_t num_copied = 0;
  for (const api::GenerationItem& item : request.items)
    num_copied += (item.n - 1) * static_cast<int64_t>(item.prompt.size());
  if (num_copied <= most) return std::nullopt;
  return api::invalid_parameter(
      request.endpoint == api::Endpoint::kScore ? "label_token_ids" : "n",
      "the prompts, once for each choice or label behind the first, are " +
          std::to_string(num_copied) + " tokens; the most is " + std::to_string(most));
}

}  // namespace

int64_t num_held_bytes(const api::GenerationRequest& request) {
  int64_t num_tokens = 0;
  for (const api::GenerationItem& item : request.items)
    num_tokens += item.n * static_cast<int64_t>(item.prompt.size());
  return num_tokens * kBytesPerHeldToken;
}

int64_t num_kept_bytes(bool has_logprobs, int num_top_logprobs) {
  return kBytesPerKeptToken + (has_logprobs ? kBytesPerKeptValue * (1 + num_top_logprobs) : 0);
}

int64_t num_prompt_values(const api::GenerationRequest& request) {
  int64_t num_values = 0;
  for (const api::GenerationItem& item : request.items) {
    num_values += num_prompt_values(request, item);
  }
  return num_values;
}

std::optional<api::ApiError> problem_of_size(const api::GenerationRequest& request,
                                             int64_t max_held_bytes) {
  if (auto problem = problem_of_copies(request, max_held_bytes)) return problem;
  const int64_t num_values = num_prompt_values(request);
  const int64_t limit = request.stream ? kMaxStreamedPromptValues : kMaxPromptValues;
  if (num_values <= limit) return std::nullopt;
  const std::string kind = request.stream ? "a stream" : "an answer";
  return api::invalid_parameter(
      "n",
      "tokens of the prompts, their log-probabilities and alternatives, for each choice, are " +
          std::to_string(num_values) + " values of the answer; " + kind + " has at most " +
          std::to_string(limit));
}

api::ApiError answer_too_large(int64_t max_bytes) {
  return api::invalid_parameter(
      "max_tokens", "the answer became larger than " + std::to_string(max_bytes >> 20) +
                        " MiB may be in memory: ask for fewer choices, tokens or alternatives");
}

}  // namespace fathom::answer
