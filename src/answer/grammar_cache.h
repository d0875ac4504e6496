#pragma once
// GrammarCache: compiled grammars by their source, the least recently used out first when they hold more
// than so many bytes together.
//
//   GrammarCache cache(/*max_bytes=*/256 << 20);
//   if (GrammarPtr grammar = cache.find(key)) return grammar;
//   cache.add(key, compiled);
//
// Thread-safe.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "grammar/grammar.h"

namespace fathom::answer {

using GrammarPtr = std::shared_ptr<const grammar::CompiledGrammar>;

class GrammarCache {
 public:
  explicit GrammarCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Null: not there.
  GrammarPtr find(const std::string& key);
  // A grammar that is larger than the whole cache is not kept.
  void add(const std::string& key, GrammarPtr grammar);
  int64_t num_bytes() const;

 private:
  struct Entry {
    std::string key;
    GrammarPtr grammar;
    int64_t bytes = 0;
  };

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  int64_t num_bytes_ = 0;
};

}  // namespace fathom::answer
