#pragma once
// What the output must look like: json_schema, regex, ebnf and structural_tag (SGLang's), response_format (OpenAI's),
// guided_* and structured_outputs (vLLM's), grammar (llama.cpp's). At most one may be set. Here only the shape is
// checked; the grammar module compiles and says what it cannot.
//
//   item.grammar = read_grammar(reader, model, GrammarNames::kAll).source;
//
// Pure, thread-safe.

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/field_reader.h"

namespace fathom::api {

struct GrammarFields {
  GrammarSourcePtr source = no_grammar();
  std::string field;  // the one that set it; empty = none
};

// {"type": "text" | "json_object" | "json_schema", "schema", "name", "strict", "description"} at `key`, as newer forms
// have it, in which the schema lies beside the type.
GrammarFields read_flat_format(FieldReader& reader, std::string_view key, const ServedModel& model);

// /generate knows SGLang's names, the OpenAI endpoints all of them.
enum class GrammarNames { kSglang, kAll };

GrammarFields read_grammar(FieldReader& reader, const ServedModel& model, GrammarNames names);

}  // namespace fathom::api
