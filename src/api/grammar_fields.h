#pragma once
// What the output must look like: json_schema, regex and ebnf (SGLang's), response_format (OpenAI's). At most
// one may be set. Here only the shape is checked; the grammar module compiles and says what it cannot.
//
//   item.grammar = read_grammar(reader, model, /*has_response_format=*/true).source;
//
// Pure, thread-safe.

#include "api/field_reader.h"
#include "api/generation_request.h"
#include "api/served_model.h"

namespace fathom::api {

struct GrammarFields {
  GrammarSource source;
  std::string field;  // the one that set it; empty = none
};

GrammarFields read_grammar(FieldReader& reader, const ServedModel& model, bool has_response_format);

}  // namespace fathom::api
