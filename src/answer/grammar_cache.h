#pragma once
// GrammarCache: what compiling gave, by owner and source: a grammar, or why there is none. Owners (the names of API
// keys) share nothing, so that none can tell by time what another has asked for. When all entries together hold more
// than so many bytes, their masks included, the owner that holds the most loses its least recently used.
//
//   GrammarCache cache({.max_bytes = 256 << 20, .max_bytes_in_use = 1 << 30});
//   if (std::optional<CompiledForm> found = cache.find(key_name, source)) return *found;
//   if (!cache.has_room(key_name)) return api::overloaded();
//   cache.add(key_name, source, compiled);
//
// Requests may hold what the cache has lost, and that counts until they are over. Thread-safe.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/tables/api_error.h"
#include "base/mutex.h"
#include "grammar/grammar.h"

namespace fathom::answer {

using GrammarPtr = std::shared_ptr<const grammar::CompiledGrammar>;
using CompiledForm = api::Parsed<GrammarPtr>;

class GrammarCache {
 public:
  struct Limits {
    int64_t max_bytes = 0;         // kept; a quarter of the next one at most
    int64_t max_bytes_in_use = 0;  // kept or held by requests; an owner has half of it at most
  };
  // An entry counts as so many bytes at least, so that their number is bounded, too.
  static constexpr int64_t kMinEntryBytes = 16 << 10;

  explicit GrammarCache(const Limits& limits);

  std::optional<CompiledForm> find(const std::string& owner, const std::string& source);
  // What is larger than the whole cache is not kept.
  void add(const std::string& owner, const std::string& source, CompiledForm form);
  // False: no more may be compiled for the owner until requests are over.
  bool has_room(const std::string& owner);
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
    int64_t num_bytes = 0;  // of the entries
    std::vector<std::weak_ptr<const grammar::CompiledGrammar>> lost;
    int64_t num_lost_bytes = 0;
  };

  void measure() FATHOM_REQUIRES(mutex_);  // masks grow, and requests end; drops what is too much
  void drop_oldest_of_largest() FATHOM_REQUIRES(mutex_);
  void lose(Owner& owner, const CompiledForm& form) FATHOM_REQUIRES(mutex_);
  bool exceeds_use(const std::string& owner) const FATHOM_REQUIRES(mutex_);

  const int64_t max_bytes_, max_bytes_in_use_;
  mutable Mutex mutex_;
  std::map<std::string, Owner> owners_
      FATHOM_GUARDED_BY(mutex_);  // those with entries, or that have lost some
  int64_t num_bytes_ FATHOM_GUARDED_BY(mutex_) = 0, num_lost_bytes_ FATHOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace fathom::answer
