#pragma once
// Places: all ways through an automaton at once, as the states of a deterministic automaton that is made while
// texts are read. A place is a set of items, each a state and a stack node; what follows a byte is looked for
// once and then known.
//
//   Places places(automaton);
//   int32_t at = places.start();
//   at = places.next(at, '{');                  // kNowhere: the byte fits nowhere
//   if (places.may_end(at)) ...
//
// A stack node stands for the call of a rule: the list of items (its callers) that go on once the rule is read.
// Equal nodes are one node and equal sets one place, wherever in the text they come up, so the same part of a
// JSON text leads to the same places again. All calls of one rule at one point share a node, so ambiguity and
// left recursion stay polynomial.
//
// An item always can be finished (prune() saw to that), so a set may be cut to a bounded size: fewer texts
// then remain possible, never a wrong one.
//
// Grows with every new place: the owner watches memory_bytes() and begins anew. Used by one thread. The
// automaton must outlive it.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/item_lists.h"
#include "grammar/item_set.h"

namespace fathom::grammar {

class Places {
 public:
  static constexpr int32_t kNowhere = -1;
  static constexpr int32_t kBottom = 0;  // the node without callers: its rule's end is the text's
  static constexpr size_t kMaxItems = 512;

  explicit Places(const Automaton& automaton);

  int32_t start() const { return start_; }
  int32_t next(int32_t place, uint8_t byte) {
    const int32_t known = cell(place, byte);
    return known != kUnknown ? known : find_next(place, byte);
  }
  int32_t next_token(int32_t place, int32_t token);
  bool may_end(int32_t place) const { return places_.tag(place); }
  // Those that read something. Holds until a place is added.
  std::span<const Item> items(int32_t place) const { return places_[place]; }
  // The place that stands for several items, sorted: what they can do together.
  int32_t place_of(std::span<const Item> items, bool may_end);
  // A set was cut: what an item can do alone, it perhaps cannot do among many.
  bool was_cut() const { return was_cut_; }

  // Stack nodes, for PlaceTransfer. Their numbers and callers stay.
  int32_t num_nodes() const { return nodes_.size(); }
  std::span<const Item> callers(int32_t node) const { return nodes_[node]; }
  // The node with these callers, sorted.
  int32_t node_with(std::span<const Item> callers) { return nodes_.number_of(callers, false); }
  // One that callers of its own may name: it gets them later, once, and is no other node's equal.
  int32_t new_node() { return nodes_.add_unshared({}); }
  void set_callers(int32_t node, std::span<const Item> callers) { nodes_.replace(node, callers); }

  const Automaton& automaton() const { return automaton_; }
  // No edge tells the two bytes apart.
  bool are_alike(uint8_t a, uint8_t b) const { return class_of_[a] == class_of_[b]; }
  // One byte of each kind that edges tell apart, ascending.
  std::span<const uint8_t> class_bytes() const { return class_bytes_; }
  // As next() != kNowhere, without looking at what comes after.
  bool fits(int32_t place, uint8_t byte);
  int32_t size() const { return places_.size(); }
  // The measure of work: roughly what a hundred million of are done in a second.
  int64_t work() const { return work_; }
  void add_work(int64_t work) { work_ += work; }
  int64_t memory_bytes() const {
    return places_.memory_bytes() + nodes_.memory_bytes() +
           static_cast<int64_t>(rows_.size() * kRowsPerChunk * num_classes_ * sizeof(int32_t));
  }

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr size_t kRowsPerChunk = 64;

  int32_t& cell(int32_t place, uint8_t byte) {
    const auto idx = static_cast<size_t>(place);
    return rows_[idx / kRowsPerChunk][idx % kRowsPerChunk * num_classes_ + class_of_[byte]];
  }
  int32_t find_next(int32_t place, uint8_t byte);
  // The place of what `set_` holds and everything that is reached from there without reading.
  int32_t close();
  void follow_without_reading();
  void call(const Automaton::CallEdge& edge, int32_t caller_node);
  // Gives the nodes that follow_without_reading() made their final numbers. False: some refer to themselves.
  bool number_new_nodes();
  void keep_readers();

  const Automaton& automaton_;
  std::array<uint8_t, 256> class_of_{};  // bytes that no edge tells apart
  std::vector<uint8_t> class_bytes_;
  size_t num_classes_ = 1;
  // [places][classes] in chunks: growing copies nothing.
  std::vector<std::unique_ptr<int32_t[]>> rows_;
  ItemLists places_;  // tag: the text may end here
  ItemLists nodes_;
  std::map<std::vector<Item>, int32_t> known_sets_;  // sets behind which nodes refer to themselves
  int32_t start_ = 0;
  bool was_cut_ = false;
  int64_t work_ = 0;

  // While a place is made. New nodes are numbered behind the others until they are final.
  struct NewNode {
    int32_t first_link = -1;
    int32_t number = -1;
  };
  struct Link {
    Item caller;
    int32_t next;
  };
  struct RuleNode {
    uint64_t epoch = 0;
    int32_t node = 0;
  };
  int32_t final_number(int32_t node) const;
  // The node's callers into callers_. False while one of them has no final number.
  bool collect_callers(const NewNode& node);
  ItemSet set_;
  std::vector<Item> kept_, callers_;
  int32_t num_old_nodes_ = 0;
  std::vector<NewNode> new_nodes_;
  std::vector<Link> links_;
  std::vector<RuleNode> rule_nodes_;  // [rules] the new node of the rule
  uint64_t epoch_ = 0;
  bool may_end_ = false;
};

}  // namespace fathom::grammar
