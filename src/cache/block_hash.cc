#include "cache/block_hash.h"

#include <algorithm>
#include <iterator>

#include "base/entropy.h"
#include "base/rng.h"

namespace fathom::cache {
namespace {

// Both halves of the product: every bit of either factor reaches the result.
uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

BlockHash::BlockHash(const BlockHashConfig& config)
    : config_(config), seed_(config.seed ? *config.seed : entropy_bits()) {}

uint64_t BlockHash::of_salt(std::string_view salt) const {
  uint64_t hash = seed_;
  for (const char byte : salt) hash = mix64(hash ^ static_cast<uint8_t>(byte));
  return hash;
}

uint64_t BlockHash::of_block(uint64_t before, std::span<const int32_t> key) const {
  const auto pair_at = [&](size_t i) {
    const auto token_at = [&](size_t j) {
      return j < key.size() ? uint64_t{static_cast<uint32_t>(key[j])} : 0;
    };
    return token_at(i) | token_at(i + 1) << 32;
  };
  uint64_t hash = before;
  for (size_t i = 0; i < key.size(); i += 4) hash = fold(hash ^ pair_at(i), seed_ ^ pair_at(i + 2));
  return mix64(hash ^ seed_) & config_.mask;
}

std::span<const int32_t> BlockHash::key(std::span<const int32_t> tokens, size_t block_idx) const {
  const auto block_tokens = static_cast<size_t>(config_.block_tokens);
  return tokens.subspan(block_idx * block_tokens,
                        block_tokens + static_cast<size_t>(config_.lookahead_tokens));
}

int64_t BlockHash::num_whole_blocks(std::span<const int32_t> tokens, int64_t max_tokens) const {
  const int64_t num_usable =
      std::min<int64_t>(max_tokens, std::ssize(tokens) - config_.lookahead_tokens);
  return std::max<int64_t>(0, num_usable) / config_.block_tokens;
}

}  // namespace fathom::cache
