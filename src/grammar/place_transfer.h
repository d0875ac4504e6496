#pragma once
// PlaceTransfer: takes a place over into other Places of the same automaton, in slices. A place is its items with all
// the stack nodes that can be reached from them, and where calls lie in each other at every character those grow with
// the text: taken over at once they would hold a mask up for milliseconds.
//
//   PlaceTransfer transfer(from, to);
//   std::optional<int32_t> place;
//   while (!(place = transfer.go_on(at, 20'000))) { ... }    // `at` may move on between the slices
//
// Used by one thread, as the places are while it goes on; between slices both may grow. They outlive it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "grammar/places.h"

namespace fathom::grammar {

class PlaceTransfer {
 public:
  PlaceTransfer(const Places& from, Places& to) : from_(from), to_(to) {}

  // The place of `to` that is `place` of `from`. Nothing: some work is left, after about `max_items` items.
  std::optional<int32_t> go_on(int32_t place, int64_t max_items);

 private:
  static constexpr int32_t kUnknown = -1;
  // A node whose callers are looked at one after the other: those before `next` have been.
  struct Step {
    int32_t node;
    size_t next = 0;
  };
  void begin(int32_t node);
  // Goes on with the innermost node: to one that it needs first, or to its end. The items that it looked at.
  int64_t advance();
  void finish(int32_t node);
  std::span<const Item> renumbered(std::span<const Item> items);

  const Places& from_;
  Places& to_;
  std::vector<int32_t> number_;  // [nodes of `from`] in `to`
  std::vector<bool> is_open_;    // [nodes of `from`] on the path
  std::vector<Step> path_;
  std::vector<Item> items_;
};

}  // namespace fathom::grammar
