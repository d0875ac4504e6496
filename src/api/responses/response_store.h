#pragma once
// ResponseStore: what /v1/responses keeps of its answers, so that a later request can go on with one by its id. Bounded
// by number and bytes; what was not used for longest goes first. What one API key stored, another cannot find.
//
//   ResponseStore store({.max_responses = 1000, .max_bytes = 64 << 20});
//   store.put(key_name, "resp_5f0c", {.messages = conversation, .body = json});
//   std::shared_ptr<const StoredResponse> found = store.find(key_name, "resp_5f0c");   // null: gone, or never there
//
// Thread-safe.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

  void put(const std::string& owner, const std::string& id, StoredResponse response);
  // Found means used. What is found stays valid after it has left the store.
  std::shared_ptr<const StoredResponse> find(const std::string& owner, const std::string& id);
  // An item of one of the responses, as JSON. Its response counts as used.
  std::optional<std::string> find_item(const std::string& owner, const std::string& item_id);
  // False: there is none.
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

  void drop(Entries::iterator entry);

  const Limits limits_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_key_;
  std::unordered_map<std::string, Entries::iterator> by_item_;  // by owner and id of the item
  Counts counts_;
};

}  // namespace fathom::api
