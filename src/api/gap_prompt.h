#pragma once
// A prompt whose answer fills the gap before a suffix (fill in the middle), as DeepSeek's models were taught it:
// <｜fim▁begin｜>PROMPT<｜fim▁hole｜>SUFFIX<｜fim▁end｜>, each mark one token.
//
//   if (!can_fill_gaps(model)) reader.fail_with("suffix", no_gaps_message());
//   raw.ids = encode_around_gap(raw.text, suffix, raw.path, model, problem);
//
// The texts are encoded as those of every completion are (prompt_fields.h).
//
// Pure, thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "api/served_model.h"
#include "api/tables/field_reader.h"

namespace fathom::api {

// Whether the tokenizer has the marks.
bool can_fill_gaps(const ServedModel& model);
std::string no_gaps_message();

// `path` is the prompt's, for a text that is too long. REQUIRES: can_fill_gaps(model).
std::vector<int32_t> encode_around_gap(const std::string& prompt, const std::string& suffix,
                                       const std::string& path, const ServedModel& model,
                                       FieldProblem& problem);

}  // namespace fathom::api
