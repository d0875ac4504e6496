#pragma once
// What a client is told when prompt and answer do not fit the context, in the words that clients look for: by them
// litellm, LangChain, Cline, OpenHands and Claude Code decide to shorten the conversation, or to ask for less, and try
// again. Other words end their session.
//
//   problem.set(prompt_too_long({.field = "messages", .num_tokens = 20006, .context = 16384}, problem.form()));
//     OpenAI     This model's maximum context length is 16384 tokens. However, your messages have 20006 tokens, ...
//                (context_length_exceeded)
//     Anthropic  prompt is too long: 20006 tokens > 16384 maximum
//
// Pure, thread-safe.

#include <cstdint>
#include <string>

#include "api/tables/api_error.h"
#include "http/message.h"

namespace fathom::api {

struct PromptUse {
  std::string field;            // "messages", "prompt[3]"
  int64_t num_tokens = 0;       // of the prompt
  int64_t context = 0;          // of the model: prompt and answer
  bool is_lower_bound = false;  // the prompt was not encoded: it has at least so many
};

// REQUIRES: num_tokens >= context.
ApiError prompt_too_long(const PromptUse& prompt, http::ClientForm form);

// The prompt fits, but not with `asked` tokens behind it. max_field: who asked.
// REQUIRES: num_tokens < context < num_tokens + asked.
ApiError output_too_long(const PromptUse& prompt, int64_t asked, const std::string& max_field,
                         http::ClientForm form);

}  // namespace fathom::api
