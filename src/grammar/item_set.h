#pragma once
// ItemSet: a set of items in the order in which they came. An item is a state of the automaton and a stack
// node (grammar/places.h) that says where its rule returns to.
//
//   ItemSet set;
//   set.add({state, node});
//   for (size_t i = 0; i < set.size(); ++i) set.add(after(set[i]));   // may grow meanwhile
//
// Used by one thread. Clearing takes no time: the object is meant to be used again.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom::grammar {

struct Item {
  int32_t state;
  int32_t node;
  friend auto operator<=>(const Item&, const Item&) = default;
};

inline uint64_t hash_of(std::span<const Item> items) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const Item& item : items) {
    hash ^= static_cast<uint64_t>(static_cast<uint32_t>(item.state)) << 32 |
            static_cast<uint32_t>(item.node);
    hash *= 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return hash;
}

class ItemSet {
 public:
  void clear() {
    items_.clear();
    ++epoch_;
  }
  void add(Item item) {
    if (items_.size() < kHashedFrom) {
      if (std::find(items_.begin(), items_.end(), item) == items_.end()) items_.push_back(item);
      return;
    }
    if (items_.size() == kHashedFrom || slots_.size() < 2 * items_.size()) hash_all();
    if (insert(item)) items_.push_back(item);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const Item& operator[](size_t idx) const { return items_[idx]; }
  std::span<const Item> items() const { return items_; }

 private:
  static constexpr size_t kHashedFrom = 12;  // smaller sets are searched one by one
  struct Slot {
    Item item = {0, 0};
    uint32_t epoch = 0;
  };
  bool insert(Item item) {
    const size_t last_slot = slots_.size() - 1;
    size_t slot = static_cast<size_t>(hash_of({&item, 1})) & last_slot;
    while (slots_[slot].epoch == epoch_) {
      if (slots_[slot].item == item) return false;
      slot = (slot + 1) & last_slot;
    }
    slots_[slot] = {item, epoch_};
    return true;
  }
  void hash_all() {
    if (slots_.size() < 2 * items_.size()) {
      slots_.assign(std::max<size_t>(256, 2 * slots_.size()), Slot{});
    }
    for (const Item& item : items_) insert(item);
  }

  std::vector<Item> items_;
  std::vector<Slot> slots_;  // a power of two of them; used once the set is large
  uint32_t epoch_ = 1;
};

}  // namespace fathom::grammar
