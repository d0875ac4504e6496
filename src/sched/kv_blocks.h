#pragma once
// KvBlocks: the pools of all KV groups and the prefix cache over them, as the scheduler uses them.
//
//   KvBlocks blocks({{.num_blocks = 1024, .block_tokens = 64}}, /*radix_cache=*/true);
//   blocks.pin_prefix(sequence, max_tokens);                  // blocks that need no computing
//   if (blocks.provide(sequence, rows, batch) == KvBlocks::Provided::kReady) ...
//   blocks.publish(sequence);                                 // as its rows become computed
//   blocks.release(sequence);
//
// A sequence's block table is its pinned path and then its leases; `provide` appends to the batch what is
// new. One thread uses it. It outlives the pins and leases in the sequences.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/radix_tree.h"
#include "core/batch.h"
#include "sched/sequence.h"

namespace fathom::sched {

struct KvGroupConfig {
  int num_blocks = 0, block_tokens = 64;
  int lookahead_tokens = 0;  // tokens behind its own that a row depends on
};

// Blocks of KV group 0, each in exactly one state.
struct KvUsage {
  int num_blocks = 0, num_free = 0, num_fenced = 0;
  int num_cached = 0;     // the prefix cache's
  int num_evictable = 0;  // of these: not in use
  int num_leased = 0;     // of running sequences alone
};

class KvBlocks {
 public:
  // kWait: they come when the steps in flight are done. kNone: not even then.
  enum class Provided { kReady, kWait, kNone };

  // Who is told of the prefix cache besides: an index that it is looked up in, and a listener; null = nobody.
  struct Watchers {
    cache::PrefixIndex* index = nullptr;
    cache::BlockListener* listener = nullptr;
    int number = 0;  // which of their caches it is
  };

  // REQUIRES with radix_cache: all groups have the same block_tokens.
  KvBlocks(const std::vector<KvGroupConfig>& groups, bool radix_cache);
  KvBlocks(const std::vector<KvGroupConfig>& groups, bool radix_cache, const Watchers& watchers);

  bool has_cache() const { return tree_ != nullptr; }
  int block_tokens() const { return groups_.front().block_tokens; }  // of group 0
  int lookahead_tokens() const { return lookahead_tokens_; }         // of the group with most
  // Changes whenever a lookup may find something else than before.
  int64_t version() const { return version_; }
  int64_t cached_prefix(const Sequence& sequence) const;

  // Starts the sequence's table with the longest cached prefix of at most max_tokens.
  void pin_prefix(Sequence& sequence, int max_tokens);
  // Whether the missing blocks of `rows` rows and `num_spare` more exist, if everything unused is evicted.
  bool can_provide(const Sequence& sequence, int rows, int num_spare) const;
  // Makes room for `rows` rows, evicting what nobody uses if it must; all or nothing.
  Provided provide(Sequence& sequence, int rows, core::Batch& batch);
  // Hands the whole blocks of the computed rows to the cache, as far as the tokens are known that their rows
  // depend on in any group; others can match them from now on.
  void publish(Sequence& sequence);
  void release(Sequence& sequence);
  // Forgets every prefix that is not in use.
  void clear();

  void step_submitted(int64_t step_id);
  void step_done(int64_t step_id);

  KvUsage usage() const;
  int num_available() const;  // free, fenced or evictable, of the scarcest group
  int64_t num_evicted_blocks() const { return tree_ == nullptr ? 0 : tree_->num_evicted_blocks(); }
  const cache::BlockPool& pool(int kv_group) const {
    return *groups_.at(static_cast<size_t>(kv_group)).pool;
  }
  // Pools, tree and the sequences that hold blocks agree (empty), or what is wrong. part: as Scheduler's.
  std::string check_integrity(const std::vector<Sequence*>& holders,
                              std::optional<uint64_t> part = {}) const;

 private:
  struct Group {
    std::unique_ptr<cache::BlockPool> pool;
    int block_tokens = 0;
  };
  int missing(size_t group, const Sequence& sequence, int rows) const;
  int num_evictable() const;
  void evict(int num_blocks);
  std::string check_holder(const Sequence& sequence) const;

  std::vector<Group> groups_;  // outlive the tree
  std::unique_ptr<cache::RadixTree> tree_;
  int lookahead_tokens_ = 0;
  int64_t version_ = 0;
};

}  // namespace fathom::sched
