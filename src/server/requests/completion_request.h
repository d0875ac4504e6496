#pragma once
// The body of POST /v1/completions -> GenerationRequest. `prompt` may be a text, texts, token ids or lists of
// token ids; each prompt becomes one item. docs/api.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_completion_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/served_model.h"

namespace fathom::server {

Parsed<GenerationRequest> parse_completion_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::server
