#include "engine/request_check.h"

#include <string>

namespace fathom::engine {

Status check_request(const core::Request& request, const runner::RunnerInfo& info) {
  if (Status status = core::validate(request.sampling, info.vocab_size); !status) return status;
  if (request.prompt.empty()) return invalid_argument("the prompt has no tokens, must have one");
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= info.vocab_size)
      return invalid_argument("prompt token " + std::to_string(i) + " is " +
                              std::to_string(request.prompt[i]) + ", must be in [0, " +
                              std::to_string(info.vocab_size) + "), the vocabulary");
  const int64_t num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t needed = num_prompt + request.sampling.max_new_tokens;
  const std::string what = "prompt of " + std::to_string(num_prompt) +
                           " tokens plus max_new_tokens " +
                           std::to_string(request.sampling.max_new_tokens) + " needs ";
  if (needed > info.max_context_tokens)
    return Error{ErrorCode::kTooLong, what + std::to_string(needed) + " tokens, the context is " +
                                          std::to_string(info.max_context_tokens)};
  for (const runner::KvGroupInfo& group : info.kv_groups) {
    const int64_t blocks = (needed + group.block_tokens - 1) / group.block_tokens;
    if (blocks > group.num_blocks)
      return Error{ErrorCode::kTooLong, what + std::to_string(blocks) + " blocks of the cache, " +
                                            std::to_string(group.num_blocks) + " exist"};
  }
  return {};
}

}  // namespace fathom::engine
