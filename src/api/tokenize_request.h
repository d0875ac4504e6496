#pragma once
// The bodies of POST /tokenize and POST /detokenize. Both are answered without the engine: the parser of
// /tokenize already holds the ids, that of /detokenize what tokenizer->decode() wants.
//
//   Parsed<TokenizeRequest> parsed = parse_tokenize_request(body, model);
//
// Pure, thread-safe. Linear in the body.

#include <cstdint>
#include <string_view>
#include <vector>

#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

struct TokenizeRequest {
  std::vector<std::vector<int32_t>> tokens;  // one list per prompt
  bool is_batch = false;  // prompt was a list: so are the answer's tokens, count and texts
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::vector<std::vector<int32_t>> tokens;
  bool is_batch = false;
  bool skip_special_tokens = true;
};

Parsed<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServedModel& model);
Parsed<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
