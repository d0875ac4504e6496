#pragma once
// What the endpoints answer, for the OpenAPI document: media types and the members that a client can count on.
//
//   object["responses"]["200"]["content"] = answer_content("/v1/chat/completions", /*streams=*/true);
//
// Pure, thread-safe.

#include <string_view>

#include "base/json_fwd.h"

namespace fathom::api {

// streams: the endpoint has events where it is asked for them.
json::Value answer_content(std::string_view path, bool streams);

}  // namespace fathom::api
