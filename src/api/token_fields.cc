#include "api/token_fields.h"

#include <algorithm>

namespace fathom::api {

void read_token_fields(FieldReader& reader, const ServedModel& model, GenerationRequest& request,
                       core::SamplingParams& sampling) {
  request.form.return_token_ids = reader.boolean("return_token_ids").value_or(false);
  request.form.tokens_as_ids = reader.boolean("return_tokens_as_token_ids").value_or(false);
  request.form.prompt_logprobs =
      reader.integer("prompt_logprobs", {0, model.limits.max_top_logprobs});
  if (!request.form.prompt_logprobs) return;
  if (request.form.stream)
    reader.fail_with("prompt_logprobs", "prompt_logprobs are not in streams");
  sampling.return_prompt_logprobs = true;
  sampling.num_top_logprobs = std::max(sampling.num_top_logprobs, *request.form.prompt_logprobs);
}

}  // namespace fathom::api
