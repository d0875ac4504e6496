#pragma once
// What OpenAI's endpoints show of token ids and of the prompt's log-probabilities, under vLLM's names:
// return_token_ids, return_tokens_as_token_ids, prompt_logprobs.
//
//   read_stream(reader, request);
//   read_token_fields(reader, model, request, item.sampling);     // after the fields of log-probabilities
//
// Pure, thread-safe.

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/field_reader.h"

namespace fathom::api {

void read_token_fields(FieldReader& reader, const ServedModel& model, GenerationRequest& request,
                       core::SamplingParams& sampling);

}  // namespace fathom::api
