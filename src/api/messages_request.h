#pragma once
// The body of POST /v1/messages (Anthropic's Messages form) -> GenerationRequest, and of /v1/messages/count_tokens ->
// how many tokens its prompt has. The prompt is the one that chat makes of the same conversation.
// docs/reference/messages.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_messages_request(exchange.request().body, model);
//   Parsed<int> num_tokens = parse_count_tokens_request(exchange.request().body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

Parsed<GenerationRequest> parse_messages_request(std::string_view body, const ServedModel& model);
Parsed<int> parse_count_tokens_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
