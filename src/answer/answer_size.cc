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

}  // namespace

int64_t num_prompt_values(const api::GenerationRequest& request) {
  int64_t num_values = 0;
  for (const api::GenerationItem& item : request.items) {
    num_values += num_prompt_values(request, item);
  }
  return num_values;
}

std::optional<api::ApiError> problem_of_size(const api::GenerationRequest& request) {
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

}  // namespace fathom::answer
