#pragma once
// RadixTree: which blocks hold the rows of which token prefix. Every node stands for one whole block of
// block_tokens tokens below its parent, with one block id per KV group; it owns these blocks. Prefixes of
// different salts never meet: each salt has a root of its own. Lookup compares token ids, a hash only finds
// the candidates.
// Rows may depend on tokens that follow (a drafter's row on the next one): with lookahead_tokens a block is
// found by its own tokens and as many behind it, so what it holds is right for whoever finds it.
//
//   RadixTree tree({&pool}, {.block_tokens = 64});
//   RadixTree::Pin pin = tree.match(salt, prompt, /*max_tokens=*/prompt.size() - 1);
//   append(pin.block_ids(0));                       // num_tokens() = 64 * blocks, rows are there
//   ...  the sequence computes the rest into leased blocks ...
//   tree.publish(pin, salt, tokens, leases);        // whole blocks go over to the tree, pin grows
//
// A Pin keeps its path from being evicted; it is move-only and unpins in its destructor. What is not pinned
// is evicted from the leaves up, least recently used first: a prefix counts as used until it is unpinned. What a salt
// has before its first line break is its owner; of several owners the one that holds the most blocks loses one, so that
// nobody's flood takes from others what they have below their equal share. An
// evicted block goes back to its pool (FENCED while a step that was submitted before it was unpinned is in
// flight). Costs O(blocks of the path); eviction O(owners), and O(log(owners)) per block.
// One thread (the scheduler's) uses a tree, its pins and pools. The pools outlive the tree, the tree its
// pins.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"
#include "cache/block_listener.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"

namespace fathom::cache {

struct RadixTreeConfig {
  int block_tokens = 64;  // of every KV group
  // Tokens behind a block that its rows depend on, of the group with most.
  int lookahead_tokens = 0;
  // The bits of a block's hash that are used. A test that takes some away sees what colliding hashes do.
  uint64_t hash_mask = ~uint64_t{0};
  // Several trees may be looked up in one index, whose hashes are then theirs. This one is number index_place.
  PrefixIndex* index = nullptr;
  int index_place = 0;
  // Told of every block that comes and goes, as those of cache index_place; null = nobody is.
  BlockListener* listener = nullptr;
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

  // The longest cached prefix of tokens in whole blocks, at most max_tokens long, pinned. The lookahead of its
  // last block lies within `tokens`.
  Pin match(std::string_view salt, std::span<const int32_t> tokens, int64_t max_tokens);
  // As match(), but without pinning or touching: how many tokens would hit.
  int64_t match_length(std::string_view salt, std::span<const int32_t> tokens,
                       int64_t max_tokens = std::numeric_limits<int64_t>::max()) const;

  // Gives the whole blocks of `tokens` that follow the pinned path, and whose lookahead lies within `tokens`,
  // to the tree. `pin` is the sequence's own,
  // from match() of the same salt and a prefix of the same tokens, or default-made. leases[g] holds the
  // blocks of group g after the path, in order (all of these whole blocks, more may follow); those that
  // enter the tree leave the front of the lease. A block whose tokens the tree already has elsewhere stays in
  // the lease, with all blocks after it: the sequence goes on using its own copy. `pin` grows by the nodes
  // added, so a later publish() of the longer sequence costs its new blocks only. REQUIRES: the rows of
  // `tokens` are computed, or will be by steps submitted before any step that reads them through a match;
  // those of a sequence that failed are not. Returns the number of blocks added.
  int publish(Pin& pin, std::string_view salt, std::span<const int32_t> tokens,
              std::vector<BlockPool::Lease>& leases);

  // Gives num_blocks blocks of every group back to the pools, or as many as are not pinned; returns how many.
  int evict(int num_blocks);
  // Evicts everything that is not pinned.
  void clear();

  int num_blocks() const { return static_cast<int>(nodes_.size()); }  // per group
  int num_pinned_blocks() const { return num_pinned_; }  // per group; the rest could be evicted
  int64_t num_evicted_blocks() const { return num_evicted_; }

  // Empty = nodes, pins, leases and the LRU order agree; else what is wrong. O(nodes).
  std::string check_integrity() const;
  // The same of some thousand nodes, each by itself: other ones for each number, and all of them in turn.
  std::string check_some(uint64_t part) const;

 private:
  // By the hash of the whole prefix.
  using Nodes = std::unordered_multimap<uint64_t, std::unique_ptr<Node>>;
  struct Owner;

  const Node* root_of(std::string_view salt) const;
  Node* child_of(const Node& parent, std::span<const int32_t> tokens) const;
  // The nodes of the longest cached prefix of at most max_blocks blocks.
  std::vector<Node*> find_path(std::string_view salt, std::span<const int32_t> tokens,
                               int64_t max_blocks) const;
  Node& root_for(std::string_view salt);  // made if there is none
  Node& add_node(Node& parent, std::span<const int32_t> tokens,
                 std::vector<BlockPool::Lease> blocks);
  void remove_leaf(Node& node);
  // Of the nodes of a path from `first` on, which are new.
  void tell_stored(const std::vector<Node*>& path, size_t first, std::string_view salt,
                   std::span<const int32_t> tokens);
  void pin_node(Node& node);
  void unpin(const std::vector<Node*>& path);
  Owner& owner_of_salt(std::string_view salt);  // made if there is none
  static void link_as_newest(Node& node);
  static void unlink(Node& node);
  std::string check_nodes() const;
  std::string check_node(const Node& node) const;
  std::string check_children() const;
  std::string check_order() const;
  // Counts the owner's nodes in `num_listed`.
  static std::string check_order_of(const Owner& owner, int& num_listed);

  RadixTreeConfig config_;
  std::vector<BlockPool*> pools_;
  BlockHash hash_;
  BlockNames names_;
  Nodes nodes_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;    // each has children
  std::map<std::string, std::unique_ptr<Owner>, std::less<>> owners_;  // each has blocks
  int num_pinned_ = 0;                                                 // nodes with pins
  int64_t num_pins_ = 0;                                               // with a path
  int64_t num_evicted_ = 0;
};

}  // namespace fathom::cache
