#pragma once
// The body of POST /v1/chat/completions -> GenerationRequest: messages rendered and encoded, every field
// checked. docs/reference/fields.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_chat_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

Parsed<GenerationRequest> parse_chat_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
