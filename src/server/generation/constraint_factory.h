#pragma once
// ConstraintFactory: the grammar of a request -> the constraint that the engine samples under. Compiled
// grammars are kept, least recently used out first, by their source.
//
//   ConstraintFactory factory({.tokenizer = tokenizer, .vocab_size = 129280, ...});
//   Parsed<ConstraintPtr> constraint = factory.make(request, item);
//
// Thread-safe; compiling runs in the caller's thread.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/token_constraint.h"
#include "server/api_error.h"
#include "server/generation_request.h"
#include "text/tokenizer.h"

namespace fathom::server {

// Null: the output is free.
using ConstraintPtr = std::unique_ptr<core::TokenConstraint>;

class ConstraintFactory {
 public:
  struct Config {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    int vocab_size = 0;
    std::vector<int32_t> eos_token_ids;
  };
  explicit ConstraintFactory(Config config) : config_(std::move(config)) {}

  Parsed<ConstraintPtr> make(const GenerationRequest& request, const GenerationItem& item);

 private:
  Config config_;
};

}  // namespace fathom::server
