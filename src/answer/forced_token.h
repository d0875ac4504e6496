#pragma once
// ForcedToken: the output is one token, over and over. The log-probabilities of the raw logits say what the model
// thinks of it.
//
//   request.constraint = std::make_unique<ForcedToken>(id);
//
// Without state; thread-safe.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "core/token_constraint.h"

namespace fathom::answer {

class ForcedToken : public core::TokenConstraint {
 public:
  explicit ForcedToken(int32_t token) : token_(token) {}

  void fill_mask(std::span<uint64_t> words) override {
    std::ranges::fill(words, 0);
    words[static_cast<size_t>(token_) / 64] = uint64_t{1} << (token_ % 64);
  }
  bool accept(int32_t token) override { return token == token_; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<ForcedToken>(token_);
  }

 private:
  const int32_t token_;
};

}  // namespace fathom::answer
