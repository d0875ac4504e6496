#pragma once
// The API as one HTML page for people: GET /docs. It needs nothing from outside and runs no scripts.
//
//   response.body = docs_page(facts);
//
// Pure, thread-safe.

#include <string>

#include "api/tables/openapi.h"

namespace fathom::api {

std::string docs_page(const OpenApiFacts& facts);

}  // namespace fathom::api
