#pragma once
// A completion as JSON, in the form of SGLang's /generate response.
//
//   json::Value value = completion_json(completion, tokenizer);
//   // {"text", "output_ids", "meta_info": {"finish_reason": {...}, "prompt_tokens", ...}}
//
// Pure function.

#include "apps/text_generation.h"
#include "base/json_fwd.h"
#include "text/tokenizer.h"

namespace fathom::apps {

json::Value completion_json(const Completion& completion, const text::Tokenizer& tokenizer);

}  // namespace fathom::apps
