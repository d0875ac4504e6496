#include "sched/kv_blocks.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/failpoint.h"

namespace fathom::sched {

KvBlocks::KvBlocks(const std::vector<KvGroupConfig>& groups, bool radix_cache)
    : KvBlocks(groups, radix_cache, Watchers{}) {}

KvBlocks::KvBlocks(const std::vector<KvGroupConfig>& groups, bool radix_cache,
                   const Watchers& watchers) {
  FATHOM_CHECK(!groups.empty(), "no KV group");
  std::vector<cache::BlockPool*> pools;
  for (const KvGroupConfig& group : groups) {
    groups_.push_back(
        {std::make_unique<cache::BlockPool>(cache::BlockPoolConfig{.num_blocks = group.num_blocks}),
         group.block_tokens});
    pools.push_back(groups_.back().pool.get());
    lookahead_tokens_ = std::max(lookahead_tokens_, group.lookahead_tokens);
    FATHOM_CHECK(!radix_cache || group.block_tokens == groups.front().block_tokens,
                 "a prefix cache over blocks of " << group.block_tokens << " and "
                                                  << groups.front().block_tokens << " tokens");
  }
  if (radix_cache)
    tree_ = std::make_unique<cache::RadixTree>(
        std::move(pools), cache::RadixTreeConfig{.block_tokens = block_tokens(),
                                                 .lookahead_tokens = lookahead_tokens_,
                                                 .index = watchers.index,
                                                 .index_place = watchers.number,
                                                 .listener = watchers.listener});
}

int64_t KvBlocks::cached_prefix(const Sequence& sequence) const {
  if (tree_ == nullptr || !sequence.reads_cache) return 0;
  return tree_->match_length(sequence.cache_salt, sequence.tokens, sequence.num_known_tokens() - 1);
}

void KvBlocks::pin_prefix(Sequence& sequence, int max_tokens) {
  sequence.leases.resize(groups_.size());
  sequence.num_row_capacity = 0;
  if (tree_ == nullptr) return;
  sequence.pin = tree_->match(sequence.cache_salt, sequence.tokens, max_tokens);
  sequence.num_row_capacity = sequence.pin.num_tokens();
}

int KvBlocks::missing(size_t group, const Sequence& sequence, int rows) const {
  const int block_tokens = groups_[group].block_tokens;
  const int wanted = (rows + block_tokens - 1) / block_tokens;
  const int held =
      sequence.pin.num_blocks() + static_cast<int>(sequence.leases[group].ids().size());
  return std::max(0, wanted - held);
}

int KvBlocks::num_evictable() const {
  return tree_ == nullptr ? 0 : tree_->num_blocks() - tree_->num_pinned_blocks();
}

int KvBlocks::num_available() const {
  int fewest = groups_.front().pool->num_blocks();
  for (const Group& group : groups_)
    fewest = std::min(fewest, group.pool->num_free() + group.pool->num_fenced());
  return fewest + num_evictable();
}

bool KvBlocks::can_provide(const Sequence& sequence, int rows, int num_spare) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const cache::BlockPool& pool = *groups_[i].pool;
    if (missing(i, sequence, rows) + num_spare >
        pool.num_free() + pool.num_fenced() + num_evictable())
      return false;
  }
  return true;
}

KvBlocks::Provided KvBlocks::provide(Sequence& sequence, int rows, core::Batch& batch) {
  if (rows <= sequence.num_row_capacity) return Provided::kReady;
  int shortage = 0;
  for (size_t i = 0; i < groups_.size(); ++i)
    shortage = std::max(shortage, missing(i, sequence, rows) - groups_[i].pool->num_free() -
                                      groups_[i].pool->num_fenced());
  if (shortage > 0) evict(shortage);
  Provided provided = Provided::kReady;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int short_now = missing(i, sequence, rows) - groups_[i].pool->num_free();
    if (short_now <= 0) continue;
    if (short_now > groups_[i].pool->num_fenced()) return Provided::kNone;
    provided = Provided::kWait;
  }
  if (provided != Provided::kReady) return provided;
  sequence.num_row_capacity = INT32_MAX;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (const int count = missing(i, sequence, rows); count > 0) {
      cache::BlockPool::Lease lease = groups_[i].pool->lease(count).value();
      batch.block_appends.push_back(
          {.slot = sequence.slot, .kv_group = static_cast<int32_t>(i), .block_ids = lease.ids()});
      sequence.leases[i].merge(std::move(lease));
    }
    const int held = sequence.pin.num_blocks() + static_cast<int>(sequence.leases[i].ids().size());
    sequence.num_row_capacity = std::min(sequence.num_row_capacity, held * groups_[i].block_tokens);
  }
  return Provided::kReady;
}

void KvBlocks::evict(int num_blocks) {
  if (tree_ != nullptr && tree_->evict(num_blocks) > 0) ++version_;
}

void KvBlocks::publish(Sequence& sequence) {
  if (tree_ == nullptr) return;
  // What was computed behind the end of a request has rows whose tokens nobody knows.
  // Failpoint: rows that steps in flight may add are published too, a fault that a test must notice.
  const int num_computed =
      sequence.num_computed_rows + (failpoint("kv_blocks.publish") ? sequence.max_advance : 0);
  const int num_rows = std::min(num_computed, sequence.num_known_tokens() - lookahead_tokens_);
  const int num_whole = num_rows / block_tokens();
  if (num_whole <= sequence.pin.num_blocks()) return;
  const int num_tokens = num_whole * block_tokens() + lookahead_tokens_;
  const auto tokens =
      std::span<const int32_t>(sequence.tokens).first(static_cast<size_t>(num_tokens));
  if (tree_->publish(sequence.pin, sequence.cache_salt, tokens, sequence.leases) > 0) ++version_;
}

void KvBlocks::release(Sequence& sequence) {
  sequence.leases.clear();
  sequence.pin = cache::RadixTree::Pin();
  sequence.num_row_capacity = 0;
}

void KvBlocks::clear() {
  if (tree_ == nullptr) return;
  tree_->clear();
  ++version_;
}

void KvBlocks::step_submitted(int64_t step_id) {
  for (Group& group : groups_) group.pool->step_submitted(step_id);
}

void KvBlocks::step_done(int64_t step_id) {
  for (Group& group : groups_) group.pool->step_done(step_id);
}

KvUsage KvBlocks::usage() const {
  const cache::BlockPool& pool = *groups_.front().pool;
  const int num_cached = tree_ == nullptr ? 0 : tree_->num_blocks();
  return {.num_blocks = pool.num_blocks(),
          .num_free = pool.num_free(),
          .num_fenced = pool.num_fenced(),
          .num_cached = num_cached,
          .num_evictable = num_evictable(),
          .num_leased = pool.num_owned() - num_cached};
}

std::string KvBlocks::check_holder(const Sequence& sequence) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int num_held =
        sequence.pin.num_blocks() + static_cast<int>(sequence.leases[i].ids().size());
    if (num_held * groups_[i].block_tokens <
        std::max(sequence.max_rows(), sequence.num_row_capacity))
      return "slot " + std::to_string(sequence.slot) + " may have " +
             std::to_string(sequence.max_rows()) + " rows, more than its " +
             std::to_string(num_held) + " blocks hold";
  }
  // A row that a step in flight may write is never shared.
  if (sequence.pin.num_tokens() > sequence.num_computed_rows)
    return "slot " + std::to_string(sequence.slot) + " shares " +
           std::to_string(sequence.pin.num_tokens()) + " rows, computed are " +
           std::to_string(sequence.num_computed_rows);
  return "";
}

std::string KvBlocks::check_integrity(const std::vector<Sequence*>& holders,
                                      std::optional<uint64_t> part) const {
  for (const Sequence* sequence : holders)
    if (std::string problem = check_holder(*sequence); !problem.empty()) return problem;
  const int num_cached = tree_ == nullptr ? 0 : tree_->num_blocks();
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (std::string problem = groups_[i].pool->check_integrity(); !problem.empty()) return problem;
    int num_leased = 0;
    for (const Sequence* sequence : holders)
      num_leased += static_cast<int>(sequence->leases[i].ids().size());
    if (num_leased + num_cached != groups_[i].pool->num_owned())
      return std::to_string(groups_[i].pool->num_owned()) + " blocks owned, " +
             std::to_string(num_leased) + " leased by running sequences and " +
             std::to_string(num_cached) + " cached";
  }
  if (tree_ == nullptr) return "";
  if (part) return tree_->check_some(*part);
  if (std::string problem = tree_->check_integrity(); !problem.empty()) return problem;
  std::set<int32_t> pinned;
  for (const Sequence* sequence : holders)
    for (const int32_t block_id : sequence->pin.block_ids(0)) pinned.insert(block_id);
  if (static_cast<int>(pinned.size()) != tree_->num_pinned_blocks())
    return std::to_string(tree_->num_pinned_blocks()) +
           " cached blocks pinned, running sequences use " + std::to_string(pinned.size());
  return "";
}

}  // namespace fathom::sched
