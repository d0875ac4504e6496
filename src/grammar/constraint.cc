#include "grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "base/token_mask.h"

namespace fathom::grammar {

GrammarConstraint::GrammarConstraint(std::shared_ptr<const void> owner,
                                     std::shared_ptr<MaskSource> source)
    : owner_(std::move(owner)),
      source_(std::move(source)),
      masks_(source_->current()),
      place_(masks_->start()) {}

GrammarConstraint::GrammarConstraint(const GrammarConstraint& other)
    : core::TokenConstraint(other),
      owner_(other.owner_),
      source_(other.source_),
      masks_(other.masks_),
      place_(other.place_),
      finished_(other.finished_) {}

void GrammarConstraint::renew() {
  if (move_ == nullptr) {
    if (!masks_->is_full() || place_ == Places::kNowhere) return;
    move_ = std::make_unique<PlaceMove>(masks_, source_->current());
  }
  const std::optional<int32_t> place = move_->go_on(place_);
  if (!place) return;
  place_ = *place;
  masks_ = move_->target();
  move_.reset();
}

void GrammarConstraint::fill_mask(std::span<uint64_t> words) {
  renew();
  if (!finished_ && place_ != Places::kNowhere) {
    masks_->fill(place_, words);
    return;
  }
  std::fill(words.begin(), words.end(), uint64_t{0});
  if (!finished_) return;
  for (const int32_t eos : masks_->vocabulary()->eos_ids()) allow_token(words, eos);
}

bool GrammarConstraint::accept(int32_t token) {
  const Vocabulary& vocabulary = *masks_->vocabulary();
  if (token < 0 || token >= vocabulary.size() || place_ == Places::kNowhere) return false;
  renew();
  if (vocabulary.is_eos(token)) {
    finished_ = finished_ || masks_->may_end(place_);
    return finished_;
  }
  if (finished_) return false;
  const int32_t next = masks_->advance(place_, token);
  if (next == Places::kNowhere) return false;
  place_ = next;
  return true;
}

std::unique_ptr<core::TokenConstraint> GrammarConstraint::clone() const {
  return std::make_unique<GrammarConstraint>(*this);
}

}  // namespace fathom::grammar
