#pragma once
// BlockListener: told which whole blocks of which prefixes a cache has, so that somebody elsewhere can keep an index of
// it: a router that sends a prompt where its prefix is.
//
//   class Publisher : public BlockListener { ... };
//   RadixTree tree({&pool}, {.block_tokens = 64, .index_place = 3, .listener = &publisher});
//
// A block is named by a hash of its salt, of all tokens before it and of its own, chained: the same in every process
// and every cache. Tokens behind a block that its rows depend on are not in it (RadixTreeConfig::lookahead_tokens), so
// a cache may have a name more than once. The hash is not keyed: it names what is there, and nothing is found by it.
// Called by the thread that uses the cache, in the order of what happens; must not wait.

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/block_hash.h"

namespace fathom::cache {

// Blocks that follow each other in one prefix. Valid during the call.
struct StoredBlocks {
  std::string_view salt;
  uint64_t parent = 0;  // the name of the block before the first; 0 = there is none
  std::span<const uint64_t> names;
  std::span<const int32_t> tokens;  // of all of them, block_tokens each
  int block_tokens = 0;
};

class BlockListener {
 public:
  virtual ~BlockListener() = default;

  virtual void stored(int cache, const StoredBlocks& blocks) = 0;
  virtual void removed(int cache, uint64_t name) = 0;
  // It holds nothing any more.
  virtual void cleared(int cache) = 0;
};

// The hash that makes names: root, then one block after the other. None of them is 0.
class BlockNames {
 public:
  explicit BlockNames(int block_tokens);

  uint64_t of_salt(std::string_view salt) const { return not_zero(hash_.of_salt(salt)); }
  // REQUIRES: block_tokens tokens.
  uint64_t of_block(uint64_t before, std::span<const int32_t> tokens) const {
    return not_zero(hash_.of_block(before, tokens));
  }

 private:
  static uint64_t not_zero(uint64_t hash) { return hash == 0 ? 1 : hash; }

  BlockHash hash_;
};

}  // namespace fathom::cache
