#include "grammar/token_walk.h"

#include <algorithm>
#include <utility>

namespace fathom::grammar {
namespace {

// A local mask may take this many looked-at items: a hostile grammar must not stall its request for long.
constexpr int64_t kMaxLocalWork = 20'000'000;

size_t num_words(const Vocabulary& vocabulary) {
  return (static_cast<size_t>(vocabulary.size()) + 63) / 64;
}

void set_bit(std::span<uint64_t> words, int32_t token) {
  const auto idx = static_cast<size_t>(token);
  if (idx / 64 < words.size()) words[idx / 64] |= uint64_t{1} << (idx % 64);
}

}  // namespace

// Plain: nothing but byte edges that exclude each other; it may end its rule.
template <class OnTokens, class OnEnd>
void TokenWalk::walk_plain(Stepper& stepper, Stepper::Item item, int32_t tree_node,
                           int64_t max_work, const OnTokens& on_tokens, const OnEnd& on_end) const {
  const std::span<const Vocabulary::Node> nodes = vocabulary_.nodes();
  const Vocabulary::Node& root = nodes[static_cast<size_t>(tree_node)];
  std::vector<int32_t> states(1, item.state);  // by depth below the root
  if (automaton_.state(item.state).accepting) on_end(tree_node);
  int32_t at = tree_node + 1;
  while (at < root.subtree_end && stepper.work() <= max_work) {
    const Vocabulary::Node& node = nodes[static_cast<size_t>(at)];
    const auto depth = static_cast<size_t>(node.depth - root.depth);
    stepper.add_work(1);
    const int32_t target = automaton_.plain_target(states[depth - 1], node.byte);
    if (target < 0) {
      at = node.subtree_end;
      continue;
    }
    if (node.num_tokens > 0) on_tokens(vocabulary_.node_tokens(node));
    if (node.subtree_end == at + 1) {
      ++at;
    } else if (follows_plainly({target, item.node})) {
      states.resize(depth);
      states.push_back(target);
      if (automaton_.state(target).accepting) on_end(at);
      ++at;
    } else {
      const Stepper::Item next = {target, item.node};
      std::vector<Stepper::Frame> frames = {stepper.push({&next, 1})};
      const Stepper::Frame bottom = frames[0];
      walk(stepper, frames, at, max_work, on_tokens, on_end);
      stepper.pop(bottom);
      at = node.subtree_end;
    }
  }
}

// frames[d] stands for the prefix that is d bytes longer than tree_node's; frames.size() == 1 at the start.
template <class OnTokens, class OnEnd>
void TokenWalk::walk(Stepper& stepper, std::vector<Stepper::Frame>& frames, int32_t tree_node,
                     int64_t max_work, const OnTokens& on_tokens, const OnEnd& on_end) const {
  const std::span<const Vocabulary::Node> nodes = vocabulary_.nodes();
  const Vocabulary::Node& root = nodes[static_cast<size_t>(tree_node)];
  int32_t at = tree_node + 1;
  while (at < root.subtree_end) {
    const Vocabulary::Node& node = nodes[static_cast<size_t>(at)];
    frames.resize(static_cast<size_t>(node.depth - root.depth));
    Stepper::Frame& above = frames.back();
    stepper.rewind(above);
    if (!above.is_expanded) {
      stepper.expand(above);
      // Preorder: the node before a first child is its parent.
      if (above.reaches_bottom) on_end(at - 1);
    }
    const Stepper::Frame frame = stepper.read(above, node.byte);
    if (frame.empty()) {
      at = node.subtree_end;
      continue;
    }
    if (node.num_tokens > 0) on_tokens(vocabulary_.node_tokens(node));
    if (stepper.work() > max_work) return;
    if (node.subtree_end == at + 1) {
      ++at;
      continue;
    }
    const std::span<const Stepper::Item> items = stepper.items(frame);
    if (items.size() == 1 && follows_plainly(items[0])) {
      walk_plain(stepper, items[0], at, max_work, on_tokens, on_end);
      at = node.subtree_end;
      continue;
    }
    frames.push_back(frame);
    ++at;
  }
}

LocalMask TokenWalk::local_mask(int32_t state) const {
  LocalMask mask;
  Stepper stepper(automaton_);
  const Stepper::Item start = {state, Stepper::kBottom};
  std::vector<Stepper::Frame> frames = {stepper.begin({&start, 1})};
  stepper.expand(frames[0]);
  const auto on_tokens = [&](std::span<const int32_t> tokens) {
    mask.tokens.insert(mask.tokens.end(), tokens.begin(), tokens.end());
  };
  const auto on_end = [&](int32_t tree_node) {
    if (tree_node != 0) mask.end_nodes.push_back(tree_node);
  };
  mask.may_end = frames[0].reaches_bottom;
  for (const Stepper::Item& item : stepper.expanded(frames[0])) {
    for (const Automaton::TokenEdge& edge : automaton_.token_edges(item.state)) {
      if (edge.token < vocabulary_.size()) mask.tokens.push_back(edge.token);
    }
  }
  if (follows_plainly(start)) {
    walk_plain(stepper, start, 0, kMaxLocalWork, on_tokens, on_end);
  } else {
    walk(stepper, frames, 0, kMaxLocalWork, on_tokens, on_end);
  }
  if (mask.tokens.size() > 2 * num_words(vocabulary_)) {
    mask.words.resize(num_words(vocabulary_));
    for (const int32_t token : mask.tokens) set_bit(mask.words, token);
    mask.tokens.clear();
  }
  mask.tokens.shrink_to_fit();
  mask.end_nodes.shrink_to_fit();
  return mask;
}

void TokenWalk::continue_from(Stepper& stepper, Stepper::Frame frame,
                              std::span<const int32_t> tree_nodes, int64_t max_work,
                              std::span<uint64_t> words) const {
  stepper.expand(frame);
  std::vector<Stepper::Frame> frames;
  for (const int32_t tree_node : tree_nodes) {
    if (stepper.work() > max_work) return;
    frames.assign(1, frame);
    walk(
        stepper, frames, tree_node, max_work,
        [&](std::span<const int32_t> tokens) {
          for (const int32_t token : tokens) set_bit(words, token);
        },
        [](int32_t) {});
  }
  stepper.rewind(frame);
}

std::shared_ptr<const LocalMask> LocalMaskCache::get(int32_t state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = masks_.find(state);
    if (found != masks_.end()) return found->second;
  }
  // Outside the lock: two threads may compute the same mask, none waits for another's.
  auto mask = std::make_shared<const LocalMask>(walk_.local_mask(state));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes_ + mask->memory_bytes() > max_bytes_) {
    masks_.clear();
    bytes_ = 0;
  }
  if (masks_.try_emplace(state, mask).second) bytes_ += mask->memory_bytes();
  return mask;
}

}  // namespace fathom::grammar
