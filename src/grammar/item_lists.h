#pragma once
// ItemLists: lists of items, each kept once and known by a number.
//
//   ItemLists lists;
//   const int32_t number = lists.number_of(items, tag);     // the same for equal items and tag
//   for (const Item& item : lists[number]) ...
//
// Used by one thread. Numbers, contents and spans stay. Contents lie in chunks: growing never copies megabytes in the
// middle of a mask.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar/item_set.h"

namespace fathom::grammar {

class ItemLists {
 public:
  int32_t size() const { return static_cast<int32_t>(lists_.size()); }
  std::span<const Item> operator[](int32_t number) const {
    const List& list = lists_[static_cast<size_t>(number)];
    return {list.items, static_cast<size_t>(list.count)};
  }
  bool tag(int32_t number) const { return lists_[static_cast<size_t>(number)].tag; }
  // Finds the list or adds it.
  int32_t number_of(std::span<const Item> items, bool tag);
  // Adds a list that is not to be found again, as it says more than its items (they refer to each other).
  int32_t add_unshared(std::span<const Item> items);
  // REQUIRES: the list was made by add_unshared().
  void replace(int32_t number, std::span<const Item> items);
  int64_t memory_bytes() const {
    return chunk_bytes_ +
           static_cast<int64_t>(lists_.capacity() * sizeof(List) + slots_.capacity() * 4);
  }

 private:
  struct List {
    const Item* items;
    int32_t count;
    uint32_t hash;
    bool tag;
  };
  int32_t append(std::span<const Item> items, uint32_t hash, bool tag);
  const Item* store(std::span<const Item> items);
  void grow();

  std::vector<List> lists_;
  std::vector<std::unique_ptr<Item[]>> chunks_;
  std::span<Item> free_;  // of the last chunk
  int64_t chunk_bytes_ = 0;
  std::vector<int32_t> slots_;  // a power of two of them; -1: free
  size_t num_shared_ = 0;
};

}  // namespace fathom::grammar
