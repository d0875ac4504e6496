#pragma once
// ShownForm: what a request says of how its answer is shown, not of how it is computed. The parsers fill it
// (GenerationRequest::form), and the renderer of the answer has it whole: a field that only changes what is shown is
// read by the one, kept here and written by the other.
//
//   request.form.return_token_ids = reader.boolean("return_token_ids").value_or(false);      // a parser
//   if (form().return_token_ids) append_token_ids(...);                                       // a renderer
//
// Plain data.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/tool_kinds.h"

namespace fathom::api {

struct ResponseDraft;

enum class Endpoint { kChat, kCompletions, kGenerate, kMessages, kResponses, kScore };

// Made of a conversation: its output has reasoning, content and calls.
inline bool is_chat(Endpoint endpoint) {
  return endpoint == Endpoint::kChat || endpoint == Endpoint::kMessages ||
         endpoint == Endpoint::kResponses;
}

struct ShownForm {
  Endpoint endpoint = Endpoint::kChat;
  std::string id{};     // rid; empty = the service draws "chatcmpl-…", "cmpl-…"
  std::string model{};  // as served
  bool stream = false;

  // The service sets these: unix seconds, and what it counts of the items.
  int64_t created = 0;
  int num_choices = 1;       // of all items
  int choices_per_item = 1;  // n

  // Chat and completions.
  bool include_usage = false;           // stream_options
  bool continuous_usage_stats = false;  // stream_options
  bool logprobs = false;                // and responses; the native API has it per item
  int top_logprobs = 0;                 // and responses: how many alternatives are shown
  bool return_token_ids = false;        // of prompt and answer
  bool tokens_as_ids = false;           // log-probabilities name tokens by id
  // Alternatives shown to each token of the prompt; none: no log-probabilities of it.
  std::optional<int> prompt_logprobs{};

  // Completions.
  bool echo = false;
  std::vector<std::string> prompt_texts{};  // per item, with echo

  // Chat.
  bool stream_reasoning = true;
  bool calls_functions = false;  // the call is shown as function_call (legacy_functions.h)
  std::shared_ptr<const ToolKinds> tool_kinds{};  // and responses; null: all tools are functions

  bool omits_thinking = false;  // messages: signatures keep what its blocks do not show

  std::shared_ptr<ResponseDraft> response{};  // responses, there never null

  // Native API.
  bool is_batch = false;  // the answer is a list even for one item
  bool return_text_in_logprobs = false;
  bool return_prompt_token_ids = false;  // with each answer's end

  bool apply_softmax = false;  // scores

  // Of the prompt, beside its log-probabilities: its tokens are kept with each choice.
  bool repeats_prompt() const { return echo || return_token_ids || return_prompt_token_ids; }
};

}  // namespace fathom::api
