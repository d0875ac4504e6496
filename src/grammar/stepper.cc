#include "grammar/stepper.h"

#include <algorithm>

namespace fathom::grammar {
namespace {

constexpr int kHashedFrom = 12;  // smaller sets are searched one by one
constexpr size_t kHashSlots = 4 * Stepper::kMaxItems;

uint64_t hash_of(const Stepper::Item& item) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(item.state)) << 32 |
                       static_cast<uint32_t>(item.node);
  return (key * 0x9E3779B97F4A7C15u) >> 40;
}

}  // namespace

Stepper::Stepper(const Automaton& automaton)
    : automaton_(&automaton),
      node_links_{-1},
      rule_nodes_(static_cast<size_t>(automaton.num_rules())) {}

Stepper::Frame Stepper::begin(std::span<const Item> items) {
  const std::vector<Item> kept(items.begin(), items.end());
  items_.assign(kept.begin(), kept.end());
  return finish(0);
}

Stepper::Frame Stepper::push(std::span<const Item> items) {
  start_set();
  const auto begin = static_cast<int32_t>(items_.size());
  for (const Item& item : items) add(begin, item);
  return finish(begin);
}

Stepper::Frame Stepper::finish(int32_t begin) {
  return {.begin = begin,
          .end = static_cast<int32_t>(items_.size()),
          .expanded_begin = begin,
          .expanded_end = static_cast<int32_t>(items_.size()),
          .num_nodes = static_cast<int32_t>(node_links_.size()),
          .num_links = static_cast<int32_t>(links_.size())};
}

void Stepper::rewind(const Frame& frame) {
  items_.resize(static_cast<size_t>(std::max(frame.end, frame.expanded_end)));
  node_links_.resize(static_cast<size_t>(frame.num_nodes));
  links_.resize(static_cast<size_t>(frame.num_links));
}

void Stepper::pop(const Frame& frame) {
  items_.resize(static_cast<size_t>(frame.begin));
  node_links_.resize(static_cast<size_t>(frame.num_nodes));
  links_.resize(static_cast<size_t>(frame.num_links));
}

void Stepper::add(int32_t begin, Item item) {
  const auto count = static_cast<int>(items_.size()) - begin;
  if (count < kHashedFrom) {
    if (std::find(items_.begin() + begin, items_.end(), item) == items_.end()) {
      items_.push_back(item);
    }
    return;
  }
  if (count >= max_items_) return;
  const bool is_full = hash_.size() < 2 * static_cast<size_t>(count);
  if (count == kHashedFrom || is_full) grow_hash(begin);
  if (insert_hash(item)) items_.push_back(item);
}

bool Stepper::insert_hash(Item item) {
  const size_t last_slot = hash_.size() - 1;
  size_t slot = static_cast<size_t>(hash_of(item)) & last_slot;
  while (hash_[slot].epoch == epoch_) {
    if (hash_[slot].item == item) return false;
    slot = (slot + 1) & last_slot;
  }
  hash_[slot] = {item, epoch_};
  return true;
}

// For the items from `begin` on and as many again.
void Stepper::grow_hash(int32_t begin) {
  const size_t count = items_.size() - static_cast<size_t>(begin);
  if (hash_.size() < 2 * count || hash_.empty()) {
    hash_.assign(std::max(kHashSlots, 2 * hash_.size()), HashSlot{});
  }
  for (size_t i = static_cast<size_t>(begin); i < items_.size(); ++i) insert_hash(items_[i]);
}

void Stepper::push_call(int32_t begin, const Automaton::CallEdge& call, int32_t caller_node) {
  RuleNode& known = rule_nodes_[static_cast<size_t>(call.rule)];
  if (known.epoch != epoch_) {
    known = {epoch_, static_cast<int32_t>(node_links_.size())};
    node_links_.push_back(-1);
  }
  int32_t& first = node_links_[static_cast<size_t>(known.node)];
  links_.push_back({{call.target, caller_node}, first});
  first = static_cast<int32_t>(links_.size()) - 1;
  add(begin, {automaton_->rule_start[static_cast<size_t>(call.rule)], known.node});
}

void Stepper::expand(Frame& frame) {
  if (frame.is_expanded) return;
  frame.is_expanded = true;
  bool all_simple = true;
  for (const Item& item : items(frame)) all_simple &= automaton_->state(item.state).simple;
  if (all_simple) return;
  start_set();
  const auto begin = static_cast<int32_t>(items_.size());
  const auto first_new_node = static_cast<int32_t>(node_links_.size());
  for (int32_t i = frame.begin; i < frame.end; ++i)
    add(begin, Item(items_[static_cast<size_t>(i)]));
  for (auto i = static_cast<size_t>(begin); i < items_.size(); ++i, ++work_) {
    const Item item = items_[i];
    for (const int32_t target : automaton_->free_edges(item.state)) {
      add(begin, {target, item.node});
    }
    for (const Automaton::CallEdge& call : automaton_->call_edges(item.state)) {
      push_call(begin, call, item.node);
    }
    if (!automaton_->state(item.state).accepting) continue;
    if (item.node == kBottom) frame.reaches_bottom = true;
    // A rule that was called right here and read nothing: prune() made edges around such calls.
    if (item.node >= first_new_node) continue;
    for (int32_t link = node_links_[static_cast<size_t>(item.node)]; link >= 0;
         link = links_[static_cast<size_t>(link)].next) {
      add(begin, links_[static_cast<size_t>(link)].caller);
      ++work_;
    }
  }
  frame.expanded_begin = begin;
  frame.expanded_end = static_cast<int32_t>(items_.size());
  frame.num_nodes = static_cast<int32_t>(node_links_.size());
  frame.num_links = static_cast<int32_t>(links_.size());
}

Stepper::Frame Stepper::read(const Frame& frame, uint8_t byte) {
  start_set();
  const auto begin = static_cast<int32_t>(items_.size());
  for (int32_t i = frame.expanded_begin; i < frame.expanded_end; ++i, ++work_) {
    const Item item = items_[static_cast<size_t>(i)];
    for (const Automaton::ByteEdge& edge : automaton_->byte_edges(item.state)) {
      if (edge.first > byte) break;
      if (edge.last >= byte) add(begin, {edge.target, item.node});
    }
  }
  return finish(begin);
}

Stepper::Frame Stepper::read_token(const Frame& frame, int32_t token) {
  start_set();
  const auto begin = static_cast<int32_t>(items_.size());
  for (int32_t i = frame.expanded_begin; i < frame.expanded_end; ++i, ++work_) {
    const Item item = items_[static_cast<size_t>(i)];
    for (const Automaton::TokenEdge& edge : automaton_->token_edges(item.state)) {
      if (edge.token == token) add(begin, {edge.target, item.node});
    }
  }
  return finish(begin);
}

void Stepper::callers(int32_t node, std::vector<Item>& out) const {
  for (int32_t link = node_links_[static_cast<size_t>(node)]; link >= 0;
       link = links_[static_cast<size_t>(link)].next) {
    out.push_back(links_[static_cast<size_t>(link)].caller);
  }
}

Stepper::Frame Stepper::settle(const Frame& frame) {
  std::vector<Item> kept(items_.begin() + frame.begin, items_.begin() + frame.end);
  if (kept.size() > kMaxItems) kept.resize(kMaxItems);
  if (hash_.size() > kHashSlots) hash_ = {};
  rewind(frame);
  if (node_links_.size() > garbage_mark_) {
    collect_garbage(kept);
    garbage_mark_ = std::max<size_t>(64, 2 * node_links_.size());
  }
  return begin(kept);
}

void Stepper::collect_garbage(std::vector<Item>& items) {
  std::vector<int32_t> new_number(node_links_.size(), -1), pending;
  std::vector<int32_t> links_of_node;
  std::vector<Link> kept_links;
  int32_t num_kept = 0;
  const auto keep = [&](int32_t& node) {
    int32_t& number = new_number[static_cast<size_t>(node)];
    if (number < 0) {
      number = num_kept++;
      pending.push_back(node);
    }
    node = number;
  };
  int32_t bottom = kBottom;
  keep(bottom);
  for (Item& item : items) keep(item.node);
  // In the order of their new numbers.
  for (size_t i = 0; i < pending.size(); ++i) {
    int32_t first = -1;
    for (int32_t link = node_links_[static_cast<size_t>(pending[i])]; link >= 0;
         link = links_[static_cast<size_t>(link)].next) {
      Item caller = links_[static_cast<size_t>(link)].caller;
      keep(caller.node);
      kept_links.push_back({caller, first});
      first = static_cast<int32_t>(kept_links.size()) - 1;
    }
    links_of_node.push_back(first);
  }
  node_links_ = std::move(links_of_node);
  links_ = std::move(kept_links);
}

}  // namespace fathom::grammar
