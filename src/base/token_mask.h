#pragma once
// Sets of tokens, as grammars make them and samplers read them: bit t % 64 of word t / 64 set = token t is allowed.
//
//   std::vector<uint64_t> words(num_mask_words(vocab_size));
//   allow_token(words, 17);
//   mask_allows(words.data(), 17);           // true
//
// Pure functions.

#include <cstddef>
#include <cstdint>
#include <span>

namespace fathom {

inline constexpr int64_t kMaskWordTokens = 64;

// The last word may be partial.
constexpr int64_t num_mask_words(int64_t vocab_size) {
  return (vocab_size + kMaskWordTokens - 1) / kMaskWordTokens;
}

// REQUIRES: the mask has a word for the token.
constexpr bool mask_allows(const uint64_t* words, int64_t token) {
  return (words[token / kMaskWordTokens] >> (token % kMaskWordTokens) & 1) != 0;
}

// A token behind the last word is left out: a vocabulary may know more of them than the model.
constexpr void allow_token(std::span<uint64_t> words, int64_t token) {
  const auto word = static_cast<size_t>(token / kMaskWordTokens);
  if (word < words.size()) words[word] |= uint64_t{1} << (token % kMaskWordTokens);
}

}  // namespace fathom
