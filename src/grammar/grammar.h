#pragma once
// compile(): an expression becomes a CompiledGrammar within fixed bounds of size and time, and a grammar
// makes constraints that mask the tokens of one sequence.
//
//   Result<std::shared_ptr<const CompiledGrammar>> grammar = compile(json_schema(text));
//   if (!grammar) return grammar.error();          // "schema at #/properties/age: \"multipleOf\" is not supported"
//   request.constraint = (*grammar)->new_constraint(vocabulary);
//
// A compiled grammar is immutable but for a cache of masks behind a lock: thread-safe. Constraints keep
// grammar and vocabulary alive; one thread at a time uses a constraint, clones are independent.

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "core/token_constraint.h"
#include "grammar/expressions/expression.h"
#include "grammar/expressions/limits.h"
#include "grammar/vocabulary.h"

namespace fathom::grammar {

class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // A constraint at the start of the text.
  virtual std::unique_ptr<core::TokenConstraint> new_constraint(
      std::shared_ptr<const Vocabulary> vocabulary) const = 0;
  virtual int num_states() const = 0;
  // What compiling made.
  virtual int64_t memory_bytes() const = 0;
  // What the masks for new sequences take, which grow with use.
  virtual int64_t mask_bytes() const = 0;
};

// kInvalidArgument with one sentence: where, the keyword or position, and the rule. kTooLong beyond a limit.
Result<std::shared_ptr<const CompiledGrammar>> compile(const Expression& expression,
                                                       const Limits& limits = {});

}  // namespace fathom::grammar
