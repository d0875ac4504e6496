#pragma once
// Stepper: follows all ways through an automaton at once. A position is a set of items, each a state and a
// stack of states to return to. Stacks share their parts: all calls of one rule at one place in the text
// are one stack node with several callers, so ambiguity and left recursion stay polynomial.
//
//   Stepper stepper(automaton);
//   Stepper::Frame frame = stepper.begin({{automaton.root_start, Stepper::kBottom}});
//   stepper.expand(frame);
//   Stepper::Frame next = stepper.read(frame, '{');   // next.empty(): the byte fits nowhere
//   stepper.rewind(frame);                            // as before read(); frames are a stack
//
// An item always can be finished (prune() saw to that), so a set may be cut to a bounded size: fewer texts
// then remain possible, never a wrong one. settle() keeps at most kMaxItems.
//
// Owns its nodes. The automaton must outlive it. Used by one thread; copies are independent.

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/automaton.h"

namespace fathom::grammar {

class Stepper {
 public:
  struct Item {
    int32_t state;
    int32_t node;
    bool operator==(const Item&) const = default;
  };
  // The callers of a node form a list of links.
  struct Link {
    Item caller;
    int32_t next;  // -1: last
  };
  // A set of items within the stepper's storage, and the storage's size when it was complete.
  struct Frame {
    int32_t begin = 0, end = 0;                    // before anything is reached without reading
    int32_t expanded_begin = 0, expanded_end = 0;  // after
    int32_t num_nodes = 0, num_links = 0;
    bool is_expanded = false;
    bool reaches_bottom = false;  // once expanded: the bottom node's rule may end here
    bool empty() const { return begin == end; }
  };
  static constexpr int32_t kBottom = 0;  // the node without callers
  static constexpr int kMaxItems = 512;  // in a set, unless more are asked for
  static constexpr int kMaxReadItems = 1 << 16;

  explicit Stepper(const Automaton& automaton);

  // Forgets everything but the nodes below and starts with these items.
  Frame begin(std::span<const Item> items);
  // A frame of these items above all others.
  Frame push(std::span<const Item> items);
  void expand(Frame& frame);
  // REQUIRES: frame is expanded and nothing lies above it.
  Frame read(const Frame& frame, uint8_t byte);
  Frame read_token(const Frame& frame, int32_t token);
  void rewind(const Frame& frame);
  // Removes the frame itself too.
  void pop(const Frame& frame);

  std::span<const Item> items(const Frame& frame) const {
    return {items_.data() + frame.begin, static_cast<size_t>(frame.end - frame.begin)};
  }
  std::span<const Item> expanded(const Frame& frame) const {
    return {items_.data() + frame.expanded_begin,
            static_cast<size_t>(frame.expanded_end - frame.expanded_begin)};
  }
  // The callers of a node, as items.
  void callers(int32_t node, std::vector<Item>& out) const;
  // The frame becomes the lowest one; nodes that none of its items needs are dropped when they are many.
  Frame settle(const Frame& frame);

  void set_max_items(int max_items) { max_items_ = max_items; }

  // Items looked at so far: the measure of work.
  int64_t work() const { return work_; }
  void add_work(int64_t work) { work_ += work; }

 private:
  // Adds to the items from `begin` on, once.
  void add(int32_t begin, Item item);
  void start_set() { ++epoch_; }
  Frame finish(int32_t begin);
  bool insert_hash(Item item);
  void grow_hash(int32_t begin);
  void push_call(int32_t begin, const Automaton::CallEdge& call, int32_t caller_node);
  void collect_garbage(std::vector<Item>& items);

  struct HashSlot {
    Item item = {0, 0};
    uint32_t epoch = 0;
  };

  const Automaton* automaton_;
  std::vector<Item> items_;
  std::vector<int32_t> node_links_;  // [nodes] the first link, -1: none
  std::vector<Link> links_;
  size_t garbage_mark_ = 64;  // collect when there are more nodes

  std::vector<HashSlot> hash_;  // the items of the set under construction, once it is large
  uint32_t epoch_ = 0;
  struct RuleNode {
    uint32_t epoch = 0;
    int32_t node = 0;
  };
  std::vector<RuleNode> rule_nodes_;  // [rules] the node of this place
  int64_t work_ = 0;
  int max_items_ = kMaxItems;
};

}  // namespace fathom::grammar
