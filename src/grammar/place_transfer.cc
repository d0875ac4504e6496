#include "grammar/place_transfer.h"

#include <algorithm>

namespace fathom::grammar {

std::optional<int32_t> PlaceTransfer::go_on(int32_t place, int64_t max_items) {
  number_.resize(static_cast<size_t>(from_.num_nodes()), kUnknown);
  is_open_.resize(number_.size(), false);
  number_[Places::kBottom] = Places::kBottom;
  while (true) {
    while (!path_.empty()) {
      if (max_items <= 0) return std::nullopt;
      max_items -= advance();
    }
    const std::span<const Item> items = from_.items(place);
    const auto missing = std::ranges::find_if(items, [this](const Item& item) {
      return number_[static_cast<size_t>(item.node)] == kUnknown;
    });
    if (missing == items.end()) return to_.place_of(renumbered(items), from_.may_end(place));
    begin(missing->node);
  }
}

void PlaceTransfer::begin(int32_t node) {
  is_open_[static_cast<size_t>(node)] = true;
  path_.push_back({node});
}

int64_t PlaceTransfer::advance() {
  Step& step = path_.back();
  const std::span<const Item> callers = from_.callers(step.node);
  const size_t first = step.next;
  while (step.next < callers.size()) {
    const int32_t node = callers[step.next++].node;
    const auto idx = static_cast<size_t>(node);
    if (number_[idx] != kUnknown) continue;
    // A circle: its number comes before its callers.
    if (is_open_[idx]) {
      number_[idx] = to_.new_node();
      continue;
    }
    const auto num_seen = static_cast<int64_t>(step.next - first);
    begin(node);
    return num_seen;
  }
  const auto num_seen = static_cast<int64_t>(callers.size() - first);
  finish(step.node);
  path_.pop_back();
  return 1 + num_seen + static_cast<int64_t>(callers.size());
}

void PlaceTransfer::finish(int32_t node) {
  const auto idx = static_cast<size_t>(node);
  const std::span<const Item> callers = renumbered(from_.callers(node));
  if (number_[idx] == kUnknown) {
    number_[idx] = to_.node_with(callers);
  } else {
    to_.set_callers(number_[idx], callers);
  }
  is_open_[idx] = false;
}

std::span<const Item> PlaceTransfer::renumbered(std::span<const Item> items) {
  items_.assign(items.begin(), items.end());
  for (Item& item : items_) item.node = number_[static_cast<size_t>(item.node)];
  std::sort(items_.begin(), items_.end());
  return items_;
}

}  // namespace fathom::grammar
