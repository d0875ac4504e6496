#pragma once
// The body of POST /v1/completions -> GenerationRequest. `prompt` may be a text, texts, token ids or lists of
// token ids; each prompt becomes one item. docs/reference/fields.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_completion_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

Parsed<GenerationRequest> parse_completion_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
