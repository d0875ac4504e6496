#include "grammar/item_lists.h"

#include <algorithm>

namespace fathom::grammar {
namespace {

// 64 KiB.
constexpr size_t kChunkItems = 8192;

}  // namespace

int32_t ItemLists::append(std::span<const Item> items, uint32_t hash, bool tag) {
  lists_.push_back({store(items), static_cast<int32_t>(items.size()), hash, tag});
  return size() - 1;
}

const Item* ItemLists::store(std::span<const Item> items) {
  if (items.size() > free_.size()) {
    const size_t num_items = std::max(kChunkItems, items.size());
    chunks_.push_back(std::make_unique_for_overwrite<Item[]>(num_items));
    free_ = {chunks_.back().get(), num_items};
    chunk_bytes_ += static_cast<int64_t>(num_items * sizeof(Item));
  }
  Item* const begin = free_.data();
  std::ranges::copy(items, begin);
  free_ = free_.subspan(items.size());
  return begin;
}

int32_t ItemLists::number_of(std::span<const Item> items, bool tag) {
  if (slots_.size() < 2 * (num_shared_ + 1)) grow();
  const auto hash = static_cast<uint32_t>(hash_of(items) >> 8) + (tag ? 1u : 0u);
  const size_t last_slot = slots_.size() - 1;
  size_t slot = hash & last_slot;
  for (; slots_[slot] >= 0; slot = (slot + 1) & last_slot) {
    const int32_t number = slots_[slot];
    const List& list = lists_[static_cast<size_t>(number)];
    if (list.hash == hash && list.tag == tag && std::ranges::equal((*this)[number], items)) {
      return number;
    }
  }
  ++num_shared_;
  return slots_[slot] = append(items, hash, tag);
}

int32_t ItemLists::add_unshared(std::span<const Item> items) { return append(items, 0, false); }

void ItemLists::replace(int32_t number, std::span<const Item> items) {
  List& list = lists_[static_cast<size_t>(number)];
  list.items = store(items);
  list.count = static_cast<int32_t>(items.size());
}

void ItemLists::grow() {
  std::vector<int32_t> old(std::max<size_t>(256, 2 * slots_.size()), -1);
  std::swap(old, slots_);
  const size_t last_slot = slots_.size() - 1;
  for (const int32_t number : old) {
    if (number < 0) continue;
    size_t slot = lists_[static_cast<size_t>(number)].hash & last_slot;
    while (slots_[slot] >= 0) slot = (slot + 1) & last_slot;
    slots_[slot] = number;
  }
}

}  // namespace fathom::grammar
