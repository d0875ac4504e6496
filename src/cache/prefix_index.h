#pragma once
// PrefixIndex: which of several prefix caches have a prefix, and how much of it: one walk over the hashes of its blocks
// instead of one in each tree. What it says is a hint: the tree of the cache compares tokens (radix_tree.h).
//
//   PrefixIndex index({.block_tokens = 64});
//   RadixTree tree({&pool}, {.block_tokens = 64, .index = &index, .index_place = 3});     // keeps its place up to date
//   std::vector<int32_t> num_blocks(8);
//   index.find(salt, tokens, max_tokens, num_blocks);             // num_blocks[3]: of the tree's
//
// At most kMaxCaches. One thread uses it. It outlives the trees.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "cache/block_hash.h"

namespace fathom::cache {

class PrefixIndex {
 public:
  static constexpr int kMaxCaches = 64;

  explicit PrefixIndex(const BlockHashConfig& config) : hash_(config) {}

  const BlockHash& hash() const { return hash_; }
  void add(uint64_t block_hash, int cache) { caches_[block_hash] |= bit(cache); }
  void remove(uint64_t block_hash, int cache);
  // num_blocks[i]: whole blocks of at most max_tokens tokens, from the first on, that cache i has.
  void find(std::string_view salt, std::span<const int32_t> tokens, int64_t max_tokens,
            std::span<int32_t> num_blocks) const;
  // Blocks over all caches.
  int64_t num_entries() const;

 private:
  static uint64_t bit(int cache) { return uint64_t{1} << cache; }

  BlockHash hash_;
  std::unordered_map<uint64_t, uint64_t> caches_;  // bit i: cache i has the block
};

}  // namespace fathom::cache
