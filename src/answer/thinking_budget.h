#pragma once
// ThinkingBudget: reasoning ends by so many tokens. Everything is allowed until then, or what another constraint
// allows; then only the end marker is, once, unless the model has written it itself.
//
//   auto budget = std::make_unique<ThinkingBudget>(limit, std::move(grammar_or_null));
//   request.constraint = std::move(budget);
//
// The tokens of the marker count, so that usage tells at most the budget; a budget that they do not fit into ends the
// reasoning at once. A reasoning that the model may or may not begin is bounded once it has begun.
// One thread at a time uses an object; it borrows the tokenizer.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/token_constraint.h"
#include "text/reasoning_tracker.h"
#include "text/tokenizer.h"

namespace fathom::answer {

class ThinkingBudget : public core::TokenConstraint {
 public:
  struct Limit {
    const text::Tokenizer* tokenizer = nullptr;
    std::shared_ptr<const std::vector<int32_t>> end_marker;  // </think> as tokens
    int num_tokens = 0;                                      // of the output
    bool starts_in_reasoning = false;  // the prompt ends in it; else the model may begin one
    bool calls_end_reasoning = false;
  };
  // `inner` is what limits the output besides; null: nothing.
  ThinkingBudget(Limit limit, std::unique_ptr<core::TokenConstraint> inner);

  void fill_mask(std::span<uint64_t> words) override;
  bool accept(int32_t token) override;
  int num_free_tokens() const override;
  bool is_free() const override;
  bool ends_at_eos() const override;
  std::unique_ptr<core::TokenConstraint> clone() const override;

 private:
  // Free tokens before the marker must begin.
  int num_before_marker() const;
  bool is_forcing() const;
  int32_t forced_token() const;

  Limit limit_;
  std::unique_ptr<core::TokenConstraint> inner_;
  text::ReasoningTracker reasoning_;
  int num_accepted_ = 0;
  size_t num_forced_ = 0;  // tokens of the marker that were forced
};

// </think> as the tokens that a model would write.
std::vector<int32_t> end_marker_tokens(const text::Tokenizer& tokenizer);

}  // namespace fathom::answer
