#pragma once
// GrammarConstraint: one sequence's place in a grammar.
//
//   GrammarConstraint constraint(grammar, masks);
//
// See core::TokenConstraint. Shares the automaton and the masks.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/token_constraint.h"
#include "grammar/token_walk.h"

namespace fathom::grammar {

class GrammarConstraint : public core::TokenConstraint {
 public:
  // `owner` keeps the automaton alive.
  GrammarConstraint(std::shared_ptr<const void> owner, const Automaton& automaton,
                    std::shared_ptr<LocalMaskCache> masks);

  void fill_mask(std::span<uint64_t> words) override;
  bool accept(int32_t token) override;
  std::unique_ptr<core::TokenConstraint> clone() const override;

 private:
  bool may_end() const;
  bool accept_frame(const Stepper::Frame& next);
  void add_item(Stepper::Item item, std::vector<Stepper::Item>& todo);
  void add_continuations(int32_t node, const StateMask& mask, int64_t max_work,
                         std::span<uint64_t> words);

  std::shared_ptr<const void> owner_;
  std::shared_ptr<LocalMaskCache> masks_;
  Stepper stepper_;
  Stepper::Frame frame_;   // where the text is; not expanded
  bool finished_ = false;  // an end-of-sequence token was accepted
};

}  // namespace fathom::grammar
