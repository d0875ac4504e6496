#pragma once
// ResponseStore: what /v1/responses keeps of its answers, so that a later request can go on with one by its id. Bounded
// by number and bytes: whoever holds the most loses what it has not used for longest, so no key's responses go to make
// room for those of one that has more. What one API key stored, another cannot find.
//
//   ResponseStore store({.max_responses = 1000, .max_bytes = 64 << 20});
//   std::shared_ptr<void> making = store.begin(key_name, "resp_5f0c");   // from here on erase() knows it
//   store.put(key_name, "resp_5f0c", {.messages = conversation, .body = json});
//   std::shared_ptr<const StoredResponse> found = store.find(key_name, "resp_5f0c");   // null: gone, or never there
//
// Thread-safe.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "text/conversation.h"

namespace fathom::api {

// An item of a response's output, within its body.
struct StoredItem {
  std::string id;
  size_t begin = 0, size = 0;
};

struct StoredResponse {
  std::vector<text::Message> messages;  // the conversation with its answer, without instructions
  std::string body;                     // the response as JSON
  std::vector<StoredItem> items{};      // of its output
};

class ResponseStore {
 public:
  struct Limits {
    int max_responses = 1000;
    int64_t max_bytes = int64_t{64} << 20;  // of texts, about
  };
  struct Counts {
    int64_t num_responses = 0, num_bytes = 0;  // now
    int64_t num_stored = 0, num_evicted = 0;   // ever; one too large for the store counts as both
  };

  explicit ResponseStore(const Limits& limits) : limits_(limits) {}

  // A response that is being made, until the object goes. The store must outlive it.
  std::shared_ptr<void> begin(const std::string& owner, const std::string& id);
  // Does nothing if it was erased while it was being made.
  void put(const std::string& owner, const std::string& id, StoredResponse response);
  // Found means used. What is found stays valid after it has left the store.
  std::shared_ptr<const StoredResponse> find(const std::string& owner, const std::string& id);
  // An item of one of the responses, as JSON. Its response counts as used.
  std::optional<std::string> find_item(const std::string& owner, const std::string& item_id);
  // Also one that is being made: it will not be stored. False: there is none.
  bool erase(const std::string& owner, const std::string& id);
  Counts counts() const;
  const Limits& limits() const { return limits_; }

 private:
  struct Entry {
    std::string owner, key;
    std::shared_ptr<const StoredResponse> response;
    int64_t num_bytes = 0;
  };
  using Entries = std::list<Entry>;  // the one used last in front
  struct Held {
    int64_t num_responses = 0, num_bytes = 0;
  };

  void drop(Entries::iterator entry) FATHOM_REQUIRES(mutex_);
  // Of the owner that holds the most of what there is too much of. REQUIRES: !entries_.empty().
  void drop_one_too_many() FATHOM_REQUIRES(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  Entries entries_ FATHOM_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Entries::iterator> by_key_ FATHOM_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Entries::iterator> by_item_
      FATHOM_GUARDED_BY(mutex_);                                // by owner and id of the item
  std::map<std::string, Held> held_ FATHOM_GUARDED_BY(mutex_);  // by owner, those with entries
  // By owner and id of the response; true: erased.
  std::unordered_map<std::string, bool> making_ FATHOM_GUARDED_BY(mutex_);
  Counts counts_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::api
