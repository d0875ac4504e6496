#pragma once
// The body of POST /generate, SGLang's native API -> GenerationRequest. docs/api.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_generate_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/served_model.h"

namespace fathom::server {

Parsed<GenerationRequest> parse_generate_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::server
