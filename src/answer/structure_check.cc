#include "answer/structure_check.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/token_mask.h"

namespace fathom::answer {
namespace {

// A text in tokens of one byte each; vocabularies of bytes have one for every byte. nullopt: this one lacks some.
std::optional<std::vector<int32_t>> byte_tokens(std::string_view bytes,
                                                const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids(bytes.size(), -1);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.token_bytes(id);
    if (text.size() != 1 || tokenizer.is_added(id)) continue;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == text.front()) ids[i] = id;
    }
  }
  if (std::ranges::count(ids, -1) > 0) return std::nullopt;
  return ids;
}

}  // namespace

StructureCheck::StructureCheck(std::unique_ptr<core::TokenConstraint> start, Config config)
    : start_(std::move(start)), config_(std::move(config)) {}

bool StructureCheck::is_whole_after(size_t num_bytes) const {
  const std::unique_ptr<core::TokenConstraint> place = start_->clone();
  size_t num_left = num_bytes;
  for (const auto& [token, num_token_bytes] : tokens_) {
    if (num_token_bytes > num_left) {
      // The end lies within this token.
      const auto rest = byte_tokens(config_.tokenizer->token_bytes(token).substr(0, num_left),
                                    *config_.tokenizer);
      if (!rest) return false;
      for (const int32_t byte : *rest) {
        if (!place->accept(byte)) return false;
      }
      break;
    }
    if (!place->accept(token)) return false;
    num_left -= num_token_bytes;
    // Tokens without text that follow change nothing of what is shown.
    if (num_left == 0) break;
  }
  std::vector<uint64_t> words(static_cast<size_t>(num_mask_words(config_.vocab_size)));
  place->fill_mask(words);
  return std::ranges::any_of(config_.eos_token_ids,
                             [&](int32_t eos) { return mask_allows(words.data(), eos); });
}

}  // namespace fathom::answer
