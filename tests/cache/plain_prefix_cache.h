#pragma once
// What a radix tree over block pools means, as plainly as it can be said: a map from a prefix to its owner's
// blocks, sets of free and fenced blocks, and searches through all of them. The prefix of a block is a string:
// a character for the salt, then one for every block from the start.
//
//   PlainPrefixCache cache(/*num_groups=*/1, /*num_blocks=*/8);
//   std::vector<std::string> path = cache.match("s", "aab", 3);
//   cache.unpin(path);

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace fathom::cache::testing {

// The blocks of one KV group that no lease has.
struct PlainPool {
  std::set<int32_t> free;
  std::multimap<int64_t, int32_t> fenced;  // by the step that fences it
};

class PlainPrefixCache {
 public:
  struct Entry {
    std::vector<int32_t> block_ids;  // per KV group
    int num_pins = 0;
    int64_t last_used = 0;
    int64_t last_step = -1;  // submitted when it was unpinned
  };

  PlainPrefixCache(int num_groups, int num_blocks) : pools_(static_cast<size_t>(num_groups)) {
    for (PlainPool& pool : pools_)
      for (int32_t id = 0; id < num_blocks; ++id) pool.free.insert(id);
  }

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const PlainPool& pool(size_t group) const { return pools_[group]; }
  int num_pinned() const {
    int count = 0;
    for (const auto& [prefix, entry] : entries_) count += entry.num_pins > 0 ? 1 : 0;
    return count;
  }
  std::vector<int32_t> block_ids(const std::vector<std::string>& path, size_t group) const {
    std::vector<int32_t> ids;
    for (const std::string& prefix : path) ids.push_back(entries_.at(prefix).block_ids[group]);
    return ids;
  }

  // The prefixes that are there, pinned.
  std::vector<std::string> match(char salt, std::string_view blocks, size_t max_blocks) {
    std::vector<std::string> path;
    std::string prefix(1, salt);
    for (size_t i = 0; i < blocks.size() && i < max_blocks; ++i) {
      prefix += blocks[i];
      const auto found = entries_.find(prefix);
      if (found == entries_.end()) break;
      ++found->second.num_pins;
      path.push_back(prefix);
    }
    return path;
  }
  size_t match_length(char salt, std::string_view blocks) const {
    size_t length = 0;
    std::string prefix(1, salt);
    while (length < blocks.size() && entries_.count(prefix += blocks[length]) > 0) ++length;
    return length;
  }
  void unpin(const std::vector<std::string>& path) {
    ++time_;
    for (const std::string& prefix : path) {
      Entry& entry = entries_.at(prefix);
      --entry.num_pins;
      entry.last_used = time_;
      entry.last_step = last_submitted_;
    }
  }
  // leases[group] are the block ids after the path.
  int publish(char salt, std::string_view blocks, std::vector<std::string>& path,
              std::vector<std::vector<int32_t>>& leases) {
    int num_added = 0;
    while (path.size() < blocks.size()) {
      std::string prefix = salt + std::string(blocks.substr(0, path.size() + 1));
      if (entries_.count(prefix) > 0) break;
      Entry entry;
      entry.num_pins = 1;
      for (std::vector<int32_t>& lease : leases) {
        entry.block_ids.push_back(lease.front());
        lease.erase(lease.begin());
      }
      entries_.emplace(prefix, std::move(entry));
      path.push_back(std::move(prefix));
      ++num_added;
    }
    return num_added;
  }
  // Of the salts 'x' and 'y' one owner is, of 'z' another.
  static char owner_of(char salt) { return salt == 'z' ? 'b' : 'a'; }
  int evict(int num_blocks) {
    int num_evicted = 0;
    for (; num_evicted < num_blocks; ++num_evicted) {
      std::map<char, int> num_held;
      for (const auto& [prefix, entry] : entries_) ++num_held[owner_of(prefix[0])];
      auto oldest = entries_.end();
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        const auto next = std::next(entry);
        const bool has_children = next != entries_.end() && next->first.starts_with(entry->first);
        if (entry->second.num_pins > 0 || has_children) continue;
        if (oldest == entries_.end() || goes_before(*entry, *oldest, num_held)) oldest = entry;
      }
      if (oldest == entries_.end()) break;
      for (size_t group = 0; group < pools_.size(); ++group)
        give_back(group, {oldest->second.block_ids[group]}, oldest->second.last_step);
      entries_.erase(oldest);
    }
    return num_evicted;
  }

  // The owner that holds more loses first, then the one whose name comes first, and of its entries the oldest.
  static bool goes_before(const std::pair<const std::string, Entry>& left,
                          const std::pair<const std::string, Entry>& right,
                          std::map<char, int>& num_held) {
    const char owner = owner_of(left.first[0]), other = owner_of(right.first[0]);
    if (owner == other) return left.second.last_used < right.second.last_used;
    if (num_held[owner] != num_held[other]) return num_held[owner] > num_held[other];
    return owner < other;
  }

  // Blocks that a pool says it leased: false = one was not free.
  bool take(size_t group, const std::vector<int32_t>& ids) {
    for (const int32_t id : ids)
      if (pools_[group].free.erase(id) == 0) return false;
    return true;
  }
  void give_back(size_t group, const std::vector<int32_t>& ids) {
    give_back(group, ids, last_submitted_);
  }
  void give_back(size_t group, const std::vector<int32_t>& ids, int64_t last_step) {
    for (const int32_t id : ids) {
      if (last_step > last_done_) {
        pools_[group].fenced.emplace(last_submitted_, id);
      } else {
        pools_[group].free.insert(id);
      }
    }
  }
  int64_t last_submitted() const { return last_submitted_; }
  int64_t last_done() const { return last_done_; }
  void submit_step() { ++last_submitted_; }
  void finish_step() {
    ++last_done_;
    for (PlainPool& pool : pools_) {
      while (!pool.fenced.empty() && pool.fenced.begin()->first <= last_done_) {
        pool.free.insert(pool.fenced.begin()->second);
        pool.fenced.erase(pool.fenced.begin());
      }
    }
  }

 private:
  std::map<std::string, Entry> entries_;
  std::vector<PlainPool> pools_;
  int64_t time_ = 0, last_submitted_ = -1, last_done_ = -1;
};

}  // namespace fathom::cache::testing
