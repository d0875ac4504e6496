#pragma once
// ServedModel: what the server knows about the model that it answers for. Everything a request is checked
// against and rendered with is here; the parsers (requests/) take it and the body and nothing else.
//
//   ServedModel model{.names = {"deepseek-v3"}, .tokenizer = tokenizer, .vocab_size = 129280, ...};
//   model.longest_token_bytes = longest_token_bytes(*model.tokenizer);
//
// Filled once at start-up, read-only and thread-safe afterwards.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/sampling_defaults.h"
#include "api/tables/field_policy.h"
#include "core/grammar_limits.h"
#include "core/sampling_params.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace fathom::api {

// The largest values a request may hold; more is a 400 that names the field.
struct RequestLimits {
  int max_n = 128;
  int max_sequences = 1024;  // prompts of one request times n
  int max_top_logprobs = core::kMaxTopLogprobs;
  int max_stop_strings = 16;
  int max_stop_bytes = 256;  // of one stop string
  int max_stop_token_ids = 128;
  int max_logit_bias = core::kMaxLogitBias;
  int max_messages = 16'384;
  int max_tools =
      16'384;  // of a request, and calls of a message; the size of the body bounds them before that
  int max_grammar_bytes = core::kMaxGrammarBytes;  // schema, pattern or rules
  int max_tokenize_bytes = 8 << 20;                // texts of one /tokenize
  int max_detokenize_ids = 1 << 20;                // ids of one /detokenize
  int max_name_bytes = 128;                        // rid
  int max_salt_bytes = 256;                        // cache_salt, extra_key
};

struct ServedModel {
  // What `model` may say, besides "default" and the path; /v1/models lists them. At least one.
  std::vector<std::string> names;
  std::string model_path;  // as started, for /model_info; clients of SGLang ask for it as the model
  std::shared_ptr<const text::Tokenizer> tokenizer;
  // None: /v1/chat/completions and messages in /tokenize are refused with `chat_format_problem`.
  std::optional<text::ChatFormat> chat_format;
  std::string chat_format_problem;

  int vocab_size = 0;          // of the model: token ids in requests are below it
  int max_context_tokens = 0;  // prompt plus output: the model's, or what the KV pool holds if less
  std::vector<int32_t> eos_token_ids;
  // 0 = unknown; refuses texts that cannot fit before they are encoded.
  size_t longest_token_bytes = 0;

  // Of the OpenAI endpoints; the native API has its own, fixed ones.
  SamplingDefaults sampling_defaults;
  bool thinks_by_default = false;               // formats with a switch (v3.1)
  bool stop_in_reasoning = false;               // --stop-in-reasoning
  bool constrain_tool_calls = false;            // --constrain-tool-calls
  bool json_without_white_space = false;        // --constrained-json-disable-any-whitespace
  std::optional<UnknownFields> unknown_fields;  // --unknown-fields; none: by endpoint
  FieldLog* field_log = nullptr;                // told of what is skipped; borrowed
  RequestLimits limits;

  bool takes_any_name = false;  // --any-model-name

  // Whether a request may ask for this model. "default" and the empty name mean whatever is served.
  bool answers_to(std::string_view name) const;
  const std::string& name() const { return names.front(); }
};

// What becomes of names that ask for nothing in the bodies of an endpoint.
FieldPolicy policy_of(std::string_view endpoint, const ServedModel& model);

// Over all tokens of the vocabulary.
size_t longest_token_bytes(const text::Tokenizer& tokenizer);

}  // namespace fathom::api
