#include "answer/answer_size.h"

#include <algorithm>
#include <string>

namespace fathom::answer {
namespace {

int64_t num_prompt_values(const api::GenerationRequest& request, const api::GenerationItem& item) {
  const auto num_tokens = static_cast<int64_t>(item.prompt.size());
  int64_t per_choice = request.form.repeats_prompt() ? num_tokens : 0;
  if (!item.sampling.return_prompt_logprobs) return item.n * per_choice;
  const int64_t num_shown = num_tokens - std::max(0, item.native.logprob_start_len);
  const int64_t logprobs = num_shown * (1 + item.sampling.num_top_logprobs);
  // Chats show them once for all choices.
  if (api::is_chat(request.form.endpoint)) return item.n * per_choice + logprobs;
  return item.n * (per_choice + logprobs);
}

// `first`: which copy of a prompt is the first that counts.
int64_t num_copied_tokens(const api::GenerationRequest& request, int first) {
  int64_t num_tokens = 0;
  for (const api::GenerationItem& item : request.items)
    num_tokens += (item.n - first) * static_cast<int64_t>(item.prompt.size());
  return num_tokens;
}

std::optional<api::ApiError> problem_of_copies(const api::GenerationRequest& request,
                                               int64_t max_held_bytes) {
  const char* const param =
      request.form.endpoint == api::Endpoint::kScore ? "label_token_ids" : "n";
  const auto refusal = [&](const char* which, int64_t num_tokens, int64_t most) {
    return api::invalid_parameter(
        param, "the prompts, once for each choice or label" + std::string(which) + ", are " +
                   std::to_string(num_tokens) + " tokens; the most is " + std::to_string(most));
  };
  const int64_t behind_first = num_copied_tokens(request, 1), all = num_copied_tokens(request, 0);
  if (behind_first > kMaxCopiedTokens)
    return refusal(" behind the first", behind_first, kMaxCopiedTokens);
  // More than all answers together may have would be refused for ever.
  if (all > max_held_bytes / kBytesPerHeldToken)
    return refusal("", all, max_held_bytes / kBytesPerHeldToken);
  return std::nullopt;
}

}  // namespace

int64_t num_held_bytes(const api::GenerationRequest& request) {
  return num_copied_tokens(request, 0) * kBytesPerHeldToken;
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
  const int64_t limit = request.form.stream ? kMaxStreamedPromptValues : kMaxPromptValues;
  if (num_values <= limit) return std::nullopt;
  const std::string kind = request.form.stream ? "a stream" : "an answer";
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
