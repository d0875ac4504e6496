#pragma once
// ConstraintFactory: what a request says about the form of its output -> the constraint that the engine
// samples under. What compiling gave is kept by owner (the name of an API key) and source.
//
//   ConstraintFactory factory({.tokenizer = tokenizer, .vocab_size = 129280, .eos_token_ids = {1}});
//   WantedForms wanted = factory.forms_of(request);
//   while (!wanted.are_made()) {
//     if (!factory.find(wanted.next(), key_name)) factory.compile(request, wanted.next(), key_name);  // takes its time
//     if (std::optional<api::ApiError> error = factory.count_next(wanted)) return *error;
//   }
//   Parsed<ConstraintPtr> constraint = factory.make(wanted.of(i));                   // of item i
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

// A form that items of a request ask for, and what it came to.
struct WantedForm {
  std::string key;  // what it is kept under, for its owner; "" = the output is free
  api::GrammarSourcePtr source = api::no_grammar();
  std::optional<CompiledForm> made{};
};

// Each different form once.
struct WantedForms {
  std::vector<WantedForm> forms{};
  std::vector<size_t> of_item{};
  size_t num_made = 0;    // the first ones
  int64_t num_bytes = 0;  // of their grammars

  const WantedForm& of(size_t item_idx) const { return forms[of_item[item_idx]]; }
  bool are_made() const { return num_made == forms.size(); }
  WantedForm& next() { return forms[num_made]; }
};

class ConstraintFactory {
 public:
  struct Config {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    int vocab_size = 0;  // of the logits
    std::vector<int32_t> eos_token_ids;
    int64_t max_cache_bytes = int64_t{256} << 20;
    int64_t max_bytes_in_use = int64_t{1} << 30;  // of grammars that are kept or that requests hold
    int64_t max_request_bytes = grammar::Limits().max_memory_bytes;  // of all grammars of a request
  };
  explicit ConstraintFactory(Config config);

  WantedForms forms_of(const api::GenerationRequest& request) const;
  // True: `made` is there, or nothing has to be made. False: compile() has to.
  bool find(WantedForm& form, const std::string& owner);
  void compile(const api::GenerationRequest& request, WantedForm& form, const std::string& owner);
  // An error: the next form is refused, or the grammars need too much memory together.
  std::optional<api::ApiError> count_next(WantedForms& wanted) const;
  // A constraint at its start; null where the output is free. REQUIRES: find() or compile() before.
  api::Parsed<ConstraintPtr> make(const WantedForm& form) const;
  // All of it for one item and no owner.
  api::Parsed<ConstraintPtr> make(const api::GenerationRequest& request,
                                  const api::GenerationItem& item);

 private:
  // The form with its key in the cache and the parameter that errors name.
  struct Form {
    grammar::Expression expression;
    std::string key, param;
  };
  std::string key_of(const api::GenerationRequest& request, const api::GrammarSource& source) const;
  Form form_of(const api::GenerationRequest& request, const api::GrammarSource& source,
               const std::vector<grammar::Tool>& tools) const;
  Form tool_form(const api::GenerationRequest& request, const std::vector<grammar::Tool>& tools,
                 bool is_required) const;
  Form source_form(const api::GrammarSource& source) const;
  // The form behind the reasoning that the output may begin with.
  Form behind_reasoning(const api::GenerationRequest& request, Form form) const;
  // Schemas of tools that cannot be compiled are let go of where nobody asked for them. An error names the parameter
  // that is at fault.
  CompiledForm compiled(const api::GenerationRequest& request,
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
