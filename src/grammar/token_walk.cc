#include "grammar/token_walk.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/token_mask.h"

namespace fathom::grammar {
namespace {

// A local mask may take this many looked-at items: a hostile grammar must not stall its request for long.
constexpr int64_t kMaxLocalWork = 20'000'000;

constexpr int kAnyDepth = std::numeric_limits<int>::max();

size_t num_words(const Vocabulary& vocabulary) {
  return static_cast<size_t>(num_mask_words(vocabulary.size()));
}

// What a walk calls: on_tokens(ids) for tokens that fit, on_end(tree node) where the rule may end.
template <class OnTokens, class OnEnd>
struct Report {
  const OnTokens& on_tokens;
  const OnEnd& on_end;
};
template <class OnTokens, class OnEnd>
Report(const OnTokens&, const OnEnd&) -> Report<OnTokens, OnEnd>;

}  // namespace

// Plain: nothing but byte edges that exclude each other; it may end its rule.
template <class Report>
void TokenWalk::walk_plain(Stepper& stepper, Stepper::Item item, int32_t tree_node,
                           const Scope& scope, const Report& report) const {
  const std::span<const TokenTree::Node> nodes = scope.tree.nodes();
  const TokenTree::Node& root = nodes[static_cast<size_t>(tree_node)];
  std::vector<int32_t> states(1, item.state);  // by depth below the root
  if (automaton_.state(item.state).accepting) report.on_end(tree_node);
  int32_t at = tree_node + 1;
  while (at < root.subtree_end && stepper.work() <= scope.max_work) {
    const TokenTree::Node& node = nodes[static_cast<size_t>(at)];
    const auto depth = static_cast<size_t>(node.depth - root.depth);
    stepper.add_work(1);
    if (node.depth > scope.max_depth) {
      at = node.subtree_end;
      continue;
    }
    const int32_t target = automaton_.plain_target(states[depth - 1], node.byte);
    if (target < 0) {
      at = node.subtree_end;
      continue;
    }
    if (node.num_tokens > 0) report.on_tokens(scope.tree.node_tokens(node));
    if (node.subtree_end == at + 1) {
      ++at;
    } else if (follows_plainly({target, item.node})) {
      states.resize(depth);
      states.push_back(target);
      if (automaton_.state(target).accepting) report.on_end(at);
      ++at;
    } else {
      const Stepper::Item next = {target, item.node};
      std::vector<Stepper::Frame> frames = {stepper.push({&next, 1})};
      const Stepper::Frame bottom = frames[0];
      walk(stepper, frames, at, scope, report);
      stepper.pop(bottom);
      at = node.subtree_end;
    }
  }
}

// frames[d] stands for the prefix that is d bytes longer than tree_node's; frames.size() == 1 at the start.
template <class Report>
void TokenWalk::walk(Stepper& stepper, std::vector<Stepper::Frame>& frames, int32_t tree_node,
                     const Scope& scope, const Report& report) const {
  const std::span<const TokenTree::Node> nodes = scope.tree.nodes();
  const TokenTree::Node& root = nodes[static_cast<size_t>(tree_node)];
  int32_t at = tree_node + 1;
  while (at < root.subtree_end) {
    const TokenTree::Node& node = nodes[static_cast<size_t>(at)];
    frames.resize(static_cast<size_t>(node.depth - root.depth));
    Stepper::Frame& above = frames.back();
    stepper.rewind(above);
    if (!above.is_expanded) {
      stepper.expand(above);
      // Preorder: the node before a first child is its parent.
      if (above.reaches_bottom) report.on_end(at - 1);
    }
    if (node.depth > scope.max_depth) {
      at = node.subtree_end;
      continue;
    }
    const Stepper::Frame frame = stepper.read(above, node.byte);
    if (frame.empty()) {
      at = node.subtree_end;
      continue;
    }
    if (node.num_tokens > 0) report.on_tokens(scope.tree.node_tokens(node));
    if (stepper.work() > scope.max_work) return;
    if (node.subtree_end == at + 1) {
      ++at;
      continue;
    }
    const std::span<const Stepper::Item> items = stepper.items(frame);
    if (items.size() == 1 && follows_plainly(items[0])) {
      walk_plain(stepper, items[0], at, scope, report);
      at = node.subtree_end;
      continue;
    }
    frames.push_back(frame);
    ++at;
  }
}

LocalMask TokenWalk::local_mask(int32_t state, const Scope& scope) const {
  LocalMask mask;
  Stepper stepper(automaton_);
  const Stepper::Item start = {state, Stepper::kBottom};
  std::vector<Stepper::Frame> frames = {stepper.begin({&start, 1})};
  stepper.expand(frames[0]);
  const auto on_tokens = [&](std::span<const int32_t> tokens) {
    mask.tokens.insert(mask.tokens.end(), tokens.begin(), tokens.end());
  };
  const auto on_end = [&](int32_t tree_node) {
    const int depth = scope.tree.nodes()[static_cast<size_t>(tree_node)].depth;
    if (depth >= scope.min_end_depth) mask.end_nodes.push_back(tree_node);
  };
  mask.may_end = frames[0].reaches_bottom;
  for (const Stepper::Item& item : stepper.expanded(frames[0])) {
    for (const Automaton::TokenEdge& edge : automaton_.token_edges(item.state)) {
      if (edge.token < vocabulary_.size()) mask.tokens.push_back(edge.token);
    }
  }
  if (follows_plainly(start)) {
    walk_plain(stepper, start, 0, scope, Report{on_tokens, on_end});
  } else {
    walk(stepper, frames, 0, scope, Report{on_tokens, on_end});
  }
  if (mask.tokens.size() > 2 * num_words(vocabulary_)) {
    mask.words.resize(num_words(vocabulary_));
    for (const int32_t token : mask.tokens) allow_token(mask.words, token);
    mask.tokens.clear();
  }
  mask.tokens.shrink_to_fit();
  mask.end_nodes.shrink_to_fit();
  return mask;
}

LocalMask TokenWalk::short_mask(int32_t state) const {
  return local_mask(state, {.tree = vocabulary_.tree(),
                            .min_end_depth = 1,
                            .max_depth = kMaxShortTokenBytes,
                            .max_work = kMaxLocalWork});
}

LocalMask TokenWalk::long_mask(int32_t state) const {
  return local_mask(state, {.tree = vocabulary_.long_tree(),
                            .min_end_depth = kMaxShortTokenBytes + 1,
                            .max_depth = kAnyDepth,
                            .max_work = kMaxLocalWork});
}

void TokenWalk::continue_from(Stepper& stepper, Stepper::Frame frame,
                              const Continuation& continuation, std::span<uint64_t> words) const {
  const Scope scope = {.tree = continuation.tree,
                       .min_end_depth = 1,
                       .max_depth = kAnyDepth,
                       .max_work = continuation.max_work};
  const auto on_tokens = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) allow_token(words, token);
  };
  const auto on_end = [](int32_t) {};
  stepper.expand(frame);
  std::vector<Stepper::Frame> frames;
  for (const int32_t tree_node : continuation.tree_nodes) {
    if (stepper.work() > scope.max_work) return;
    frames.assign(1, frame);
    walk(stepper, frames, tree_node, scope, Report{on_tokens, on_end});
  }
  stepper.rewind(frame);
}

// Masks are computed outside the lock: two threads may compute the same one, none waits for another's.
std::shared_ptr<const StateMask> LocalMaskCache::get(int32_t state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = masks_.find(state);
    if (found != masks_.end()) return found->second;
  }
  auto mask = std::make_shared<const StateMask>(
      StateMask{.short_tokens = short_mask(state), .long_tokens = walk_.long_mask(state)});
  const std::lock_guard<std::mutex> lock(mutex_);
  make_room(mask->own_bytes());
  if (masks_.try_emplace(state, mask).second) bytes_ += mask->own_bytes();
  return mask;
}

std::shared_ptr<const LocalMask> LocalMaskCache::short_mask(int32_t state) {
  const int32_t state_class = automaton_.class_of[static_cast<size_t>(state)];
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = short_masks_.find(state_class);
    if (found != short_masks_.end()) return found->second;
  }
  auto mask = std::make_shared<const LocalMask>(walk_.short_mask(state));
  const std::lock_guard<std::mutex> lock(mutex_);
  make_room(mask->memory_bytes());
  if (short_masks_.try_emplace(state_class, mask).second) bytes_ += mask->memory_bytes();
  return mask;
}

void LocalMaskCache::make_room(int64_t num_bytes) {
  if (bytes_ + num_bytes <= max_bytes_) return;
  masks_.clear();
  short_masks_.clear();
  bytes_ = 0;
}

}  // namespace fathom::grammar
