#pragma once
// A TokenConstraint whose rule can be written down in one line: after n tokens with hash h, token t may come when
// (t + h) is a multiple of `divisor`, or is an eos token and n >= min_tokens. So every token before decides what
// may come. Some token is always allowed when the vocabulary is larger than the divisor. It aborts when two
// threads use it at once.

#include <atomic>

#include "base/check.h"
#include "base/rng.h"
#include "base/token_mask.h"
#include "core/token_constraint.h"

namespace fathom::engine::testing {

class ToyConstraint : public core::TokenConstraint {
 public:
  struct Rule {
    int vocab_size = 100, divisor = 3, min_tokens = 2;
    std::vector<int32_t> eos_token_ids{};
  };
  explicit ToyConstraint(Rule rule) : rule_(std::move(rule)) {}
  ToyConstraint(const ToyConstraint& other)
      : rule_(other.rule_), num_tokens_(other.num_tokens_), hash_(other.hash_) {}

  void fill_mask(std::span<uint64_t> words) override {
    const Use use(*this);
    for (uint64_t& word : words) word = 0;
    for (int32_t token = 0; token < rule_.vocab_size; ++token)
      if (is_allowed(token)) allow_token(words, token);
  }
  bool accept(int32_t token) override {
    const Use use(*this);
    if (!is_allowed(token)) return false;
    ++num_tokens_;
    hash_ = mix64(hash_ ^ static_cast<uint64_t>(token));
    return true;
  }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<ToyConstraint>(*this);
  }

 private:
  struct Use {
    explicit Use(ToyConstraint& owner) : owner(owner) {
      FATHOM_CHECK(!owner.in_use_.exchange(true), "two threads use one constraint");
    }
    ~Use() { owner.in_use_ = false; }
    ToyConstraint& owner;
  };
  bool is_allowed(int32_t token) const {
    for (const int32_t eos : rule_.eos_token_ids)
      if (token == eos) return num_tokens_ >= rule_.min_tokens;
    return (static_cast<uint64_t>(token) + hash_ % 1000) % static_cast<uint64_t>(rule_.divisor) ==
           0;
  }

  Rule rule_;
  int64_t num_tokens_ = 0;
  uint64_t hash_ = 0x70795469u;
  std::atomic<bool> in_use_{false};
};

}  // namespace fathom::engine::testing
