#include "answer/thinking_budget.h"

#include <algorithm>
#include <string>
#include <utility>

#include "text/chat_markup.h"

namespace fathom::answer {

ThinkingBudget::ThinkingBudget(Limit limit, std::unique_ptr<core::TokenConstraint> inner)
    : limit_(std::move(limit)),
      inner_(std::move(inner)),
      reasoning_(limit_.starts_in_reasoning, limit_.calls_end_reasoning) {}

void ThinkingBudget::fill_mask(std::span<uint64_t> words) {
  if (is_forcing()) {
    const auto token = static_cast<size_t>(forced_token());
    std::ranges::fill(words, uint64_t{0});
    words[token / 64] = uint64_t{1} << (token % 64);
  } else if (inner_ != nullptr) {
    inner_->fill_mask(words);
  } else {
    std::ranges::fill(words, ~uint64_t{0});
  }
}

bool ThinkingBudget::accept(int32_t token) {
  const bool is_forced = is_forcing();
  if (is_forced && token != forced_token()) return false;
  if (inner_ != nullptr && !inner_->accept(token)) return false;
  ++num_accepted_;
  if (is_forced) ++num_forced_;
  // Ids beyond the tokenizer's have no text.
  if (token >= limit_.tokenizer->vocab_size()) return true;
  std::string before, answer;
  reasoning_.push(limit_.tokenizer->token_bytes(token), before, answer);
  return true;
}

int ThinkingBudget::num_free_tokens() const {
  if (inner_ != nullptr) return inner_->num_free_tokens();
  return std::max(0, num_before_marker() - num_accepted_);
}

bool ThinkingBudget::is_free() const {
  return reasoning_.is_over() && (inner_ == nullptr || inner_->is_free());
}

bool ThinkingBudget::ends_at_eos() const { return inner_ != nullptr && inner_->ends_at_eos(); }

std::unique_ptr<core::TokenConstraint> ThinkingBudget::clone() const {
  auto copy = std::make_unique<ThinkingBudget>(limit_, inner_ ? inner_->clone() : nullptr);
  copy->reasoning_ = reasoning_;
  copy->num_accepted_ = num_accepted_;
  copy->num_forced_ = num_forced_;
  return copy;
}

int ThinkingBudget::num_before_marker() const {
  return std::max(0, limit_.num_tokens - static_cast<int>(limit_.end_marker->size()));
}

bool ThinkingBudget::is_forcing() const {
  return reasoning_.in_reasoning() && num_accepted_ >= num_before_marker();
}

int32_t ThinkingBudget::forced_token() const { return (*limit_.end_marker)[num_forced_]; }

std::vector<int32_t> end_marker_tokens(const text::Tokenizer& tokenizer) {
  if (const auto id = tokenizer.token_id(text::markup::kThinkEnd)) return {*id};
  return tokenizer.encode(text::markup::kThinkEnd);
}

}  // namespace fathom::answer
