#pragma once
// BlockHash: what a whole block of a prefix is found by, a hash of it and all blocks before it.
//
//   const BlockHash hash({.block_tokens = 64});
//   uint64_t found_by = hash.of_salt(salt);
//   for (int64_t i = 0; i < hash.num_whole_blocks(tokens, max_tokens); ++i)
//     found_by = hash.of_block(found_by, hash.key(tokens, i));
//
// It is keyed, by a number drawn at random unless one is given, so nobody can choose prompts whose blocks collide.
// Those who share a hash share its key.
// Plain data and pure functions.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fathom::cache {

struct BlockHashConfig {
  int block_tokens = 64;
  // Tokens behind a block that its rows depend on, which belong to its key.
  int lookahead_tokens = 0;
  // The bits that are used. A test that takes some away sees what colliding hashes do.
  uint64_t mask = ~uint64_t{0};
  std::optional<uint64_t> seed{};  // the key; none = at random
};

class BlockHash {
 public:
  explicit BlockHash(const BlockHashConfig& config);

  uint64_t of_salt(std::string_view salt) const;
  uint64_t of_block(uint64_t before, std::span<const int32_t> key) const;
  // What block `block_idx` of these tokens is found by.
  std::span<const int32_t> key(std::span<const int32_t> tokens, size_t block_idx) const;
  // Of at most max_tokens tokens, whose lookahead is known.
  int64_t num_whole_blocks(std::span<const int32_t> tokens, int64_t max_tokens) const;

 private:
  BlockHashConfig config_;
  uint64_t seed_;
};

}  // namespace fathom::cache
