#pragma once
// GrammarCache: what compiling gave, by owner and source: a grammar, or why there is none. Owners (the names of API
// keys) share nothing, so that none can tell by time what another has asked for. When all entries together hold more
// than so many bytes, the owner that holds the most loses its least recently used.
//
//   GrammarCache cache(/*max_bytes=*/256 << 20);
//   if (std::optional<CompiledForm> found = cache.find(key_name, source)) return *found;
//   cache.add(key_name, source, compiled);
//
// Thread-safe.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "api/tables/api_error.h"
#include "grammar/grammar.h"

namespace fathom::answer {

using GrammarPtr = std::shared_ptr<const grammar::CompiledGrammar>;
using CompiledForm = api::Parsed<GrammarPtr>;

class GrammarCache {
 public:
  explicit GrammarCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  std::optional<CompiledForm> find(const std::string& owner, const std::string& source);
  // What is larger than the whole cache is not kept.
  void add(const std::string& owner, const std::string& source, CompiledForm form);
  int64_t num_bytes() const;

 private:
  struct Entry {
    std::string source;
    CompiledForm form;
    int64_t bytes = 0;
  };
  struct Owner {
    std::list<Entry> entries;  // most recently used first
    std::unordered_map<std::string, std::list<Entry>::iterator> by_source;
    int64_t num_bytes = 0;
  };

  void drop_oldest_of_largest();

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, Owner> owners_;  // those with entries
  int64_t num_bytes_ = 0;
};

}  // namespace fathom::answer
