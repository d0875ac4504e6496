#include "api/responses/response_store.h"

#include <algorithm>
#include <utility>

namespace fathom::api {
namespace {

constexpr int64_t kBytesPerEntry = 512;  // what lists and maps take for one, generously
constexpr int64_t kBytesPerMessage = 256;

// Names hold no line break.
std::string key_of(const std::string& owner, const std::string& id) { return owner + '\n' + id; }

int64_t bytes_of(const StoredResponse& response) {
  auto num_bytes = kBytesPerEntry + static_cast<int64_t>(response.body.size());
  for (const text::Message& message : response.messages) {
    num_bytes += kBytesPerMessage +
                 static_cast<int64_t>(message.content.value_or("").size() +
                                      message.reasoning.size() + message.tool_call_id.size());
    for (const text::ToolCall& call : message.tool_calls) {
      num_bytes += kBytesPerMessage +
                   static_cast<int64_t>(call.id.size() + call.name.size() + call.arguments.size());
    }
  }
  for (const StoredItem& item : response.items) {
    num_bytes += kBytesPerMessage + static_cast<int64_t>(item.id.size());
  }
  return num_bytes;
}

}  // namespace

std::shared_ptr<void> ResponseStore::begin(const std::string& owner, const std::string& id) {
  std::string key = key_of(owner, id);
  {
    const MutexLock lock(mutex_);
    making_.emplace(key, false);
  }
  return {nullptr, [this, key = std::move(key)](void*) {
            const MutexLock lock(mutex_);
            making_.erase(key);
          }};
}

void ResponseStore::put(const std::string& owner, const std::string& id, StoredResponse response) {
  Entry entry{.owner = owner,
              .key = key_of(owner, id),
              .response = nullptr,
              .num_bytes = bytes_of(response)};
  entry.response = std::make_shared<const StoredResponse>(std::move(response));
  const MutexLock lock(mutex_);
  if (const auto made = making_.find(entry.key); made != making_.end() && made->second) return;
  if (const auto found = by_key_.find(entry.key); found != by_key_.end()) drop(found->second);
  Held& held = held_[owner];
  held.num_bytes += entry.num_bytes;
  ++held.num_responses;
  counts_.num_bytes += entry.num_bytes;
  ++counts_.num_responses;
  ++counts_.num_stored;
  entries_.push_front(std::move(entry));
  by_key_.emplace(entries_.front().key, entries_.begin());
  for (const StoredItem& item : entries_.front().response->items) {
    by_item_.insert_or_assign(key_of(owner, item.id), entries_.begin());
  }
  while (!entries_.empty() &&
         (counts_.num_bytes > limits_.max_bytes || counts_.num_responses > limits_.max_responses)) {
    drop_one_too_many();
    ++counts_.num_evicted;
  }
}

void ResponseStore::drop_one_too_many() {
  const auto amount =
      counts_.num_bytes > limits_.max_bytes ? &Held::num_bytes : &Held::num_responses;
  const auto most = std::ranges::max_element(
      held_, {}, [amount](const auto& of_owner) { return of_owner.second.*amount; });
  auto oldest = std::prev(entries_.end());
  while (oldest->owner != most->first) --oldest;
  drop(oldest);
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& owner,
                                                          const std::string& id) {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(key_of(owner, id));
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

std::optional<std::string> ResponseStore::find_item(const std::string& owner,
                                                    const std::string& item_id) {
  const MutexLock lock(mutex_);
  const auto found = by_item_.find(key_of(owner, item_id));
  if (found == by_item_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  const StoredResponse& response = *found->second->response;
  const auto item = std::ranges::find(response.items, item_id, &StoredItem::id);
  return response.body.substr(item->begin, item->size);
}

bool ResponseStore::erase(const std::string& owner, const std::string& id) {
  const MutexLock lock(mutex_);
  const std::string key = key_of(owner, id);
  const auto made = making_.find(key);
  const bool was_being_made = made != making_.end() && !std::exchange(made->second, true);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return was_being_made;
  drop(found->second);
  return true;
}

ResponseStore::Counts ResponseStore::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

void ResponseStore::drop(Entries::iterator entry) {
  counts_.num_bytes -= entry->num_bytes;
  --counts_.num_responses;
  const auto held = held_.find(entry->owner);
  held->second.num_bytes -= entry->num_bytes;
  if (--held->second.num_responses == 0) held_.erase(held);
  by_key_.erase(entry->key);
  for (const StoredItem& item : entry->response->items) {
    const auto found = by_item_.find(key_of(entry->owner, item.id));
    if (found != by_item_.end() && found->second == entry) by_item_.erase(found);
  }
  entries_.erase(entry);
}

}  // namespace fathom::api
