#include "grammar/places.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fathom::grammar {
namespace {

// Items and callers that one place may look at before its set is cut.
constexpr int64_t kMaxSteps = 1 << 14;
// New nodes are numbered after those that they refer to; what takes more rounds is taken for a circle.
constexpr int kMaxRounds = 8;

// What sorting so many items costs, in Places::work().
int64_t sorting_work(size_t num_items) {
  return static_cast<int64_t>(num_items * static_cast<size_t>(std::bit_width(num_items)) / 4);
}

bool reads(const Automaton& automaton, int32_t state) {
  return !automaton.byte_edges(state).empty() || !automaton.token_edges(state).empty();
}

}  // namespace

Places::Places(const Automaton& automaton)
    : automaton_(automaton), rule_nodes_(static_cast<size_t>(automaton.num_rules())) {
  std::array<bool, 257> begins{};
  for (const Automaton::ByteEdge& edge : automaton.bytes) {
    begins[edge.first] = begins[size_t{edge.last} + 1] = true;
  }
  class_bytes_.push_back(0);
  for (size_t byte = 1; byte < 256; ++byte) {
    if (begins[byte]) class_bytes_.push_back(static_cast<uint8_t>(byte));
    class_of_[byte] = static_cast<uint8_t>(class_bytes_.size() - 1);
  }
  num_classes_ = class_bytes_.size();
  nodes_.add_unshared({});  // kBottom
  set_.clear();
  set_.add({automaton.root_start, kBottom});
  start_ = close();
}

int32_t Places::place_of(std::span<const Item> items, bool may_end) {
  const int32_t number = places_.number_of(items, may_end);
  if (static_cast<size_t>(number) >= rows_.size() * kRowsPerChunk) {
    const size_t num_cells = kRowsPerChunk * num_classes_;
    rows_.push_back(std::make_unique_for_overwrite<int32_t[]>(num_cells));
    std::fill_n(rows_.back().get(), num_cells, kUnknown);
    work_ += static_cast<int64_t>(num_cells / 32);
  }
  return number;
}

bool Places::fits(int32_t place, uint8_t byte) {
  const int32_t known = cell(place, byte);
  if (known != kUnknown) return known != kNowhere;
  ++work_;
  return std::ranges::any_of(items(place), [&](const Item& item) {
    return std::ranges::any_of(automaton_.byte_edges(item.state), [&](const auto& edge) {
      return edge.first <= byte && byte <= edge.last;
    });
  });
}

int32_t Places::find_next(int32_t place, uint8_t byte) {
  // All bytes from `first` to `last` are told apart by no item: their cells are filled together.
  uint8_t first = 0, last = 255;
  set_.clear();
  const std::span<const Item> from = items(place);
  work_ += 8;
  for (const Item& item : from) {
    for (const Automaton::ByteEdge& edge : automaton_.byte_edges(item.state)) {
      ++work_;
      if (edge.first > byte) {
        last = std::min(last, static_cast<uint8_t>(edge.first - 1));
        break;
      }
      if (edge.last < byte) {
        first = std::max(first, static_cast<uint8_t>(edge.last + 1));
        continue;
      }
      first = std::max(first, edge.first);
      last = std::min(last, edge.last);
      set_.add({edge.target, item.node});
    }
  }
  work_ += static_cast<int64_t>(set_.size());
  const int32_t target = set_.empty() ? kNowhere : close();
  int32_t* const cells = &cell(place, first);
  std::fill_n(cells, class_of_[last] - class_of_[first] + 1, target);
  return target;
}

int32_t Places::next_token(int32_t place, int32_t token) {
  set_.clear();
  for (const Item& item : items(place)) {
    for (const Automaton::TokenEdge& edge : automaton_.token_edges(item.state)) {
      if (edge.token == token) set_.add({edge.target, item.node});
    }
  }
  return set_.empty() ? kNowhere : close();
}

int32_t Places::close() {
  may_end_ = false;
  num_old_nodes_ = nodes_.size();
  new_nodes_.clear();
  links_.clear();
  if (set_.size() == 1 && automaton_.state(set_[0].state).simple) {
    return place_of(set_.items(), false);
  }
  std::vector<Item> known;
  if (!known_sets_.empty()) {
    known.assign(set_.items().begin(), set_.items().end());
    std::sort(known.begin(), known.end());
    const auto found = known_sets_.find(known);
    if (found != known_sets_.end()) return found->second;
  }
  const size_t num_given = set_.size();
  follow_without_reading();
  const bool has_circles = !number_new_nodes();
  keep_readers();
  const int32_t place = kept_.empty() && !may_end_ ? kNowhere : place_of(kept_, may_end_);
  if (has_circles) {
    known.assign(set_.items().begin(), set_.items().begin() + static_cast<int64_t>(num_given));
    std::sort(known.begin(), known.end());
    known_sets_.emplace(std::move(known), place);
  }
  return place;
}

void Places::follow_without_reading() {
  ++epoch_;
  int64_t steps = 0, num_free = 0;
  for (size_t i = 0; i < set_.size(); ++i, ++steps) {
    const Item item = set_[i];
    if (steps > kMaxSteps) {
      was_cut_ = true;
      break;
    }
    const Automaton::State& state = automaton_.state(item.state);
    if (state.simple) continue;
    for (const int32_t target : automaton_.free_edges(item.state)) {
      set_.add({target, item.node});
      ++num_free;
    }
    for (const Automaton::CallEdge& edge : automaton_.call_edges(item.state)) {
      call(edge, item.node);
      ++steps;
    }
    if (!state.accepting) continue;
    if (item.node == kBottom) may_end_ = true;
    // A rule that was called right here and read nothing: prune() made edges around such calls.
    if (item.node >= num_old_nodes_) continue;
    for (const Item& caller : nodes_[item.node]) {
      set_.add(caller);
      ++steps;
    }
  }
  work_ += 2 * (steps + num_free);
}

void Places::call(const Automaton::CallEdge& edge, int32_t caller_node) {
  RuleNode& known = rule_nodes_[static_cast<size_t>(edge.rule)];
  if (known.epoch != epoch_) {
    known = {epoch_, num_old_nodes_ + static_cast<int32_t>(new_nodes_.size())};
    new_nodes_.emplace_back();
  }
  NewNode& node = new_nodes_[static_cast<size_t>(known.node - num_old_nodes_)];
  links_.push_back({{edge.target, caller_node}, node.first_link});
  node.first_link = static_cast<int32_t>(links_.size()) - 1;
  set_.add({automaton_.rule_start[static_cast<size_t>(edge.rule)], known.node});
}

int32_t Places::final_number(int32_t node) const {
  if (node < num_old_nodes_) return node;
  return new_nodes_[static_cast<size_t>(node - num_old_nodes_)].number;
}

bool Places::collect_callers(const NewNode& node) {
  callers_.clear();
  for (int32_t link = node.first_link; link >= 0; link = links_[static_cast<size_t>(link)].next) {
    Item caller = links_[static_cast<size_t>(link)].caller;
    caller.node = final_number(caller.node);
    if (caller.node < 0) return false;
    callers_.push_back(caller);
  }
  work_ += sorting_work(callers_.size());
  std::sort(callers_.begin(), callers_.end());
  callers_.erase(std::unique(callers_.begin(), callers_.end()), callers_.end());
  return true;
}

bool Places::number_new_nodes() {
  size_t num_left = new_nodes_.size();
  for (int round = 0; round < kMaxRounds && num_left > 0; ++round) {
    const size_t before = num_left;
    for (NewNode& node : new_nodes_) {
      if (node.number >= 0 || !collect_callers(node)) continue;
      node.number = nodes_.number_of(callers_, false);
      --num_left;
    }
    work_ += static_cast<int64_t>(4 * new_nodes_.size());
    if (num_left == before) break;
  }
  if (num_left == 0) return true;
  std::vector<NewNode*> circular;
  for (NewNode& node : new_nodes_) {
    if (node.number < 0) circular.push_back(&node);
  }
  for (NewNode* const node : circular) node->number = nodes_.add_unshared({});
  for (NewNode* const node : circular) {
    collect_callers(*node);
    nodes_.replace(node->number, callers_);
  }
  return false;
}

void Places::keep_readers() {
  kept_.clear();
  for (const Item& item : set_.items()) {
    if (reads(automaton_, item.state)) kept_.push_back({item.state, final_number(item.node)});
  }
  work_ += sorting_work(kept_.size());
  std::sort(kept_.begin(), kept_.end());
  kept_.erase(std::unique(kept_.begin(), kept_.end()), kept_.end());
  if (kept_.size() > kMaxItems) {
    // The first states of a rule keep many ways open, the last ones finish it: both ends stay.
    was_cut_ = true;
    const auto half = static_cast<std::ptrdiff_t>(kMaxItems / 2);
    kept_.erase(kept_.begin() + half, kept_.end() - half);
  }
  work_ += static_cast<int64_t>(2 * set_.size());
}

}  // namespace fathom::grammar
