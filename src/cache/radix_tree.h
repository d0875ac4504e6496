#pragma once
// RadixTree: which blocks hold the rows of which token prefix. Every node stands for one whole block of
// block_tokens tokens below its parent, with one block id per KV group; it owns these blocks. Prefixes of
// different salts never meet: each salt has a root of its own. Lookup compares token ids, a hash only finds
// the candidates.
//
//   RadixTree tree({&pool}, {.block_tokens = 64});
//   RadixTree::Pin pin = tree.match(salt, prompt, /*max_tokens=*/prompt.size() - 1);
//   append(pin.block_ids(0));                       // num_tokens() = 64 * blocks, rows are there
//   ...  the sequence computes the rest into leased blocks ...
//   tree.publish(pin, salt, tokens, leases);        // whole blocks go over to the tree, pin grows
//
// A Pin keeps its path from being evicted; it is move-only and unpins in its destructor. Unpinned leaves
// are evicted in least-recently-used order; an evicted block goes back to its pool (FENCED while steps are
// in flight). Costs O(blocks of the path); eviction O(log leaves) per block.
// One thread (the scheduler's) uses a tree, its pins and pools. The pools outlive the tree, the tree its
// pins.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_pool.h"

namespace fathom::cache {

struct RadixTreeConfig {
  int block_tokens = 64;  // of every KV group
};

class RadixTree {
 public:
  struct Node;

  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept;
    Pin& operator=(Pin&& other) noexcept;
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin();

    int num_blocks() const { return static_cast<int>(path_.size()); }
    int num_tokens() const;
    // From the root down.
    std::vector<int32_t> block_ids(int kv_group) const;

   private:
    friend class RadixTree;
    RadixTree* tree_ = nullptr;
    std::vector<Node*> path_;
  };

  RadixTree(std::vector<BlockPool*> pools, const RadixTreeConfig& config);
  ~RadixTree();  // REQUIRES: no pins
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // The longest cached prefix of tokens in whole blocks, at most max_tokens long, pinned and made the most
  // recently used.
  Pin match(std::string_view salt, std::span<const int32_t> tokens, int64_t max_tokens);
  // As match() but without pinning or touching: how many tokens would hit.
  int64_t match_length(std::string_view salt, std::span<const int32_t> tokens) const;

  // Gives the whole blocks of `tokens` that follow the pinned path to the tree. leases[g] holds the blocks
  // of group g after the path, in order; those that enter the tree leave the front of the lease. A block
  // whose tokens the tree already has elsewhere stays in the lease, with all blocks after it: the sequence
  // goes on using its own copy. `pin` grows by the nodes added. Rows of `tokens` are computed.
  // Returns the number of blocks added.
  int publish(Pin& pin, std::string_view salt, std::span<const int32_t> tokens,
              std::vector<BlockPool::Lease>& leases);

  // Gives at least num_blocks blocks of every group back to the pools if unpinned leaves suffice; returns
  // how many.
  int evict(int num_blocks);
  // Evicts everything that is not pinned.
  void clear();

  int num_blocks() const { return num_blocks_; }         // per group
  int num_pinned_blocks() const { return num_pinned_; }  // per group; the rest could be evicted
  int64_t num_evicted_blocks() const { return num_evicted_; }

  // Empty = nodes, pins, leases and the LRU order agree; else what is wrong. O(nodes).
  std::string check_integrity() const;

 private:
  RadixTreeConfig config_;
  std::vector<BlockPool*> pools_;
  int num_blocks_ = 0, num_pinned_ = 0;
  int64_t num_evicted_ = 0;
};

}  // namespace fathom::cache
