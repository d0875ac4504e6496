#pragma once
// ConstraintFactory: what a request says about the form of its output -> the constraint that the engine
// samples under. What compiling gave is kept by owner (the name of an API key) and source.
//
//   ConstraintFactory factory({.tokenizer = tokenizer, .vocab_size = 129280, .eos_token_ids = {1}});
//   std::vector<std::string> sources = factory.sources_of(request);       // one for each item
//   if (factory.has_to_compile(sources, key_name)) ...                     // make() takes its time
//   Parsed<ConstraintPtr> constraint = factory.make(request, item, {.owner = key_name, .source = sources[i]});
//
// Where the output begins with reasoning, that is free and the form holds for what follows it. Tool calls
// that are required take the place of a response format; beside calls that are only allowed the output is
// either calls or what the format wants.
// Thread-safe; compiling runs in the caller's thread, bounded in time and memory.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/grammar_cache.h"
#include "api/generation_request.h"
#include "api/tables/api_error.h"
#include "core/token_constraint.h"
#include "grammar/expressions/expression.h"
#include "grammar/structural_tag.h"
#include "grammar/tool_calls.h"
#include "grammar/vocabulary.h"
#include "text/tokenizer.h"

namespace fathom::answer {

// Null: the output is free.
using ConstraintPtr = std::unique_ptr<core::TokenConstraint>;

class ConstraintFactory {
 public:
  struct Config {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    int vocab_size = 0;  // of the logits
    std::vector<int32_t> eos_token_ids;
    int64_t max_cache_bytes = int64_t{256} << 20;
  };
  explicit ConstraintFactory(Config config);

  // What the forms of the request's items are kept under; "" where the output is free.
  std::vector<std::string> sources_of(const api::GenerationRequest& request) const;
  bool has_to_compile(const std::vector<std::string>& sources, const std::string& owner);
  struct CacheKey {
    std::string owner, source;  // source: of sources_of()
  };
  api::Parsed<ConstraintPtr> make(const api::GenerationRequest& request,
                                  const api::GenerationItem& item, const CacheKey& key);
  // For one item and no owner.
  api::Parsed<ConstraintPtr> make(const api::GenerationRequest& request,
                                  const api::GenerationItem& item) {
    return make(request, item, {.owner = "", .source = source_of(request, item)});
  }

 private:
  // The form with its key in the cache and the parameter that errors name.
  struct Form {
    grammar::Expression expression;
    std::string key, param;
  };
  std::string source_of(const api::GenerationRequest& request,
                        const api::GenerationItem& item) const;
  Form form_of(const api::GenerationRequest& request, const api::GrammarSource& source,
               const std::vector<grammar::Tool>& tools) const;
  Form tool_form(const api::GenerationRequest& request, const std::vector<grammar::Tool>& tools,
                 bool is_required) const;
  Form source_form(const api::GrammarSource& source) const;
  // The form behind the reasoning that the output may begin with.
  Form behind_reasoning(const api::GenerationRequest& request, Form form) const;
  // Schemas of tools that cannot be compiled are let go of where nobody asked for them. An error names the parameter
  // that is at fault.
  CompiledForm compile(const api::GenerationRequest& request,
                       const api::GrammarSource& source) const;
  // The vocabulary has it as a token that is never text. An ordinary token that spells a marker is text: as a marker
  // too, it would be allowed where the grammar does not take it.
  bool is_marker(int32_t token) const;
  // A text of the chat format: one token where it is a marker, else its bytes.
  grammar::Marker marker(std::string_view text) const;
  // A text's special tokens and what is between them.
  std::vector<grammar::Marker> split(std::string_view text) const;
  grammar::TokenNames token_names() const;
  grammar::ToolCallSyntax tool_syntax(text::ChatFormat format) const;

  const Config config_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;  // null: no eos token, so no grammar
  GrammarCache cache_;
};

}  // namespace fathom::answer
