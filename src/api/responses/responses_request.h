#pragma once
// The body of POST /v1/responses (OpenAI's Responses form) -> GenerationRequest. The prompt is the one that chat makes
// of the same conversation. docs/reference/responses.md lists the fields.
//
//   Parsed<GenerationRequest> parsed = parse_responses_request(body, model, past);
//   // std::get<GenerationRequest>(parsed).response: what its renderer and the store need
//
// Thread-safe. Linear in the body and the conversation that it goes on with.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/generation_request.h"
#include "api/responses/response_items.h"
#include "api/responses/response_store.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

// The caller's stored response of that id; null: there is none.
using FindResponse = std::function<std::shared_ptr<const StoredResponse>(const std::string& id)>;

// What the caller has stored; empty: nothing is ever stored.
struct StoredPast {
  FindResponse find_response{};
  FindItem find_item{};
};

Parsed<GenerationRequest> parse_responses_request(std::string_view body, const ServedModel& model,
                                                  const StoredPast& past);

}  // namespace fathom::api
