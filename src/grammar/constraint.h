#pragma once
// GrammarConstraint: one sequence's place in a grammar.
//
//   GrammarConstraint constraint(grammar, source);
//
// See core::TokenConstraint. Shares places and masks with the grammar's other sequences.

#include <cstdint>
#include <memory>
#include <span>

#include "core/token_constraint.h"
#include "grammar/place_masks.h"

namespace fathom::grammar {

class GrammarConstraint : public core::TokenConstraint {
 public:
  // `owner` keeps the automaton alive.
  GrammarConstraint(std::shared_ptr<const void> owner, std::shared_ptr<MaskSource> source);
  // The same place. What the other one has of a move it keeps for itself.
  GrammarConstraint(const GrammarConstraint& other);

  void fill_mask(std::span<uint64_t> words) override;
  bool accept(int32_t token) override;
  std::unique_ptr<core::TokenConstraint> clone() const override;

 private:
  // Leaves masks that are full for new ones, a slice of the way at each call.
  void renew();

  std::shared_ptr<const void> owner_;
  std::shared_ptr<MaskSource> source_;
  std::shared_ptr<PlaceMasks> masks_;
  int32_t place_;
  bool finished_ = false;  // an end-of-sequence token was accepted
  std::unique_ptr<PlaceMove> move_;
};

}  // namespace fathom::grammar
