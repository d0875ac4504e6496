#pragma once
// ServedModel: what the server knows about the checkpoint before its weights are there. EngineFacts: what
// it learns when they are. Plain data, immutable once the server has it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/sampling_params.h"
#include "text/chat_format.h"
#include "text/tokenizer.h"

namespace fathom::server {

struct ServedModel {
  std::string name;                            // as clients call it
  std::string model_path;                      // as given to --model-path
  std::string model_type, architecture;        // config.json
  const text::Tokenizer* tokenizer = nullptr;  // outlives the server
  std::optional<text::ChatFormat> chat_format;
  std::string chat_format_problem;  // why there is none
  int vocab_size = 0;               // of the logits; the tokenizer may know fewer or more
  std::vector<int32_t> eos_token_ids;
  core::SamplingParams default_sampling;  // what a request that says nothing gets
  int64_t created = 0;                    // unix seconds
};

struct EngineFacts {
  int64_t max_context_tokens = 0;  // longest sequence, prompt and answer
  int64_t max_total_tokens = 0;    // rows of the KV pool
  int max_running_requests = 0;
  int64_t weight_bytes = 0, kv_cache_bytes = 0;
};

}  // namespace fathom::server
