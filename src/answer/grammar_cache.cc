#include "answer/grammar_cache.h"

#include <utility>

#include "base/memory.h"

namespace fathom::answer {

GrammarPtr GrammarCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->grammar;
}

void GrammarCache::add(const std::string& key, GrammarPtr grammar) {
  const int64_t bytes = grammar->memory_bytes() + 2 * static_cast<int64_t>(key.size());
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || by_key_.contains(key)) return;
  const memory::MustSucceed scope;  // an entry must be in the list and in the map, or in neither
  entries_.push_front({.key = key, .grammar = std::move(grammar), .bytes = bytes});
  by_key_[key] = entries_.begin();
  num_bytes_ += bytes;
  while (num_bytes_ > max_bytes_) {
    const Entry& oldest = entries_.back();
    num_bytes_ -= oldest.bytes;
    by_key_.erase(oldest.key);
    entries_.pop_back();
  }
}

int64_t GrammarCache::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace fathom::answer
