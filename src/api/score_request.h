#pragma once
// The body of POST /v1/score: how likely each of some tokens is to follow a query and an item. One item of the request
// for each item of the body, with as many answers as there are label tokens: each is that token and nothing else, and
// its log-probability is what is asked for.
//
//   Parsed<GenerationRequest> parsed = parse_score_request(body, model);
//
// Pure, thread-safe. Linear in the body.

#include <string_view>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/api_error.h"

namespace fathom::api {

Parsed<GenerationRequest> parse_score_request(std::string_view body, const ServedModel& model);

}  // namespace fathom::api
