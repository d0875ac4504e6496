#pragma once
// What a response of /v1/responses repeats of its request: the members that OpenAI's schema wants, with the values that
// hold where the request says nothing.
//
//   draft.settings = response_settings(reader, item.sampling, draft);   // "\"instructions\":null,\"tools\":[],..."
//
// Pure, thread-safe.

#include <string>

#include "api/responses/response_draft.h"
#include "api/tables/field_reader.h"
#include "core/sampling_params.h"

namespace fathom::api {

// As JSON text without braces. Of a request that was read without a problem; more than 1 MiB becomes one.
std::string response_settings(FieldReader& reader, const core::SamplingParams& sampling,
                              const ResponseDraft& draft);

}  // namespace fathom::api
