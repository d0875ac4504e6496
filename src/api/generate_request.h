#pragma once
// The body of POST /generate, SGLang's native API -> GenerationRequest. docs/reference/native.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_generate_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

Parsed<GenerationRequest> parse_generate_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
